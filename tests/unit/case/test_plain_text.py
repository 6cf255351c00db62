"""Texts from pictures: spaces at odd places change no answer, and columns of tables stay as they are."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from forensics.case.plain_text import evened, parted, unescaped, unstamped, unwrapped
from tests.recordings.verdicts import named, verdict_of

LOG = (
    "".join(f"[rank0] step {step} of 900 loss 2.{step} at 410 ms each on 4 GPUs\n" for step in range(10, 20))
    + "[rank2]: Traceback (most recent call last):\n"
    + '[rank2]:   File "/w/train.py", line 210, in main\n'
    + "[rank2]: FileNotFoundError: no shard of the data is there in /mnt/shards any more\n"
    + "".join(
        f"[rank{rank}]:[E811 16:20:19.2 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=59, OpType=ALLREDUCE, NumelIn=27, NumelOut=27, Timeout(ms)=600000) ran for 600098 milliseconds before "
        "timing out.\n"
        for rank in (0, 1, 3)
    )
)


def read_from_a_picture(text: str) -> str:
    """Two spaces at every fifth place."""
    parts = text.split(" ")
    return "".join(part + ("  " if number % 5 == 2 and part else " ") for number, part in enumerate(parts)).strip(" ")


def test_spaces_at_odd_places_change_no_answer(tmp_path: Path) -> None:
    text = read_from_a_picture(LOG)
    assert "Watchdog  caught" in text or "collective  operation" in text or "ran  for" in text
    for folder, content in (("plain", LOG), ("picture", text)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "job.log").write_text(content)
        assert named(verdict_of(tmp_path / folder)) == {2}


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "".join(f"812231.{step}    python  train  llm_r  96  CANCELLED  0:15  gpu-b1{step} x\n" for step in range(9)),
        "".join(f"rank {rank}      : at work since 10 steps      loss 2.{rank} in 410 ms\n" for rank in range(12)),
    ],
    ids=["one space", "columns", "far apart"],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert evened(text.encode()) == text.encode()


LABELLED = "".join(f"[1,{rank}]<stdout>:step {step} of 90 loss 2.{step}\n" for step in range(40, 44) for rank in range(4)) + (
    "[1,2]<stderr>:FileNotFoundError: [Errno 2] No such file or directory: '/mnt/s'\n"
    "prterun noticed that process rank 2 with PID 4177 on node w12 exited on\nsignal 11 (Segmentation fault).\n"
)


@pytest.mark.parametrize("frame", ["{}", "<pre>\n{}</pre>\n", '<pre><code class="language-text">{}</code></pre>\n'])
def test_a_block_out_of_the_source_of_a_page_is_read_as_what_it_shows(tmp_path: Path, frame: str) -> None:
    (tmp_path / "paste.txt").write_text(frame.format(html.escape(LABELLED)))
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize(
    "text",
    ["rank 1 <stderr>: a &lt; b\n", "<h1>Hangs</h1>\n<p>Look for &quot;Watchdog&quot;</p>\n", "a & b && c &lt\n"],
    ids=["raw labels", "a page", "no entity"],
)
def test_other_texts_with_entities_stay(text: str) -> None:
    assert unescaped(text.encode()) == text.encode()


MAIL = "From: ann@x.org\nTo: bob@x.org\nSubject: hang\n\nsee below\n\n"


def test_a_mail_that_quotes_a_text_as_a_whole_is_read_as_that_text() -> None:
    quoted = "".join(f"> {line}\n" for line in LOG.splitlines())
    for mail in (quoted, MAIL + quoted, f"On Fri, Aug 21, 2026 at 14:30 Ann wrote:\n{quoted}\nstorage?\n"):
        assert LOG in unwrapped(mail.encode()).decode()
        assert unwrapped(mail.encode()).count(b"\n") == mail.count("\n")


def test_records_of_torch_that_a_comment_put_on_one_line_are_read(tmp_path: Path) -> None:
    """What two processes wrote at once into one line of a log is left as it is."""
    front = "[rank{0}]:[E409 06:10:10.{0}00000000 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank {0}] "
    gave_up = (
        f"{front}Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    )
    gave_up += "Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
    at = f"{front}Received a dump signal from rank 1. Last enqueued NCCL work: {{1}}, last completed NCCL work: 76."
    records = [each.format(rank, 76 + (rank != 2)) for rank in range(4) for each in ((gave_up, at) if rank != 2 else (at,))]
    for name, text in (("joined", "same here: " + " ".join(records)), ("apart", "\n".join(records))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "comment.md").write_text(f"{text}\n")
        assert named(verdict_of(tmp_path / name)) == {2}
    assert parted("\n".join([*records, " ".join(records[:2])]).encode()) is None
    assert parted("".join(f"{at}: {line}\n" for at, line in enumerate(records)).encode()) is None


def test_a_mail_with_a_text_of_its_own_keeps_its_quotes() -> None:
    """What is quoted there may be of long ago."""
    quoted = "".join(f"> {line}\n" for line in LOG.splitlines())
    for mail in (MAIL + LOG + quoted, quoted + LOG, MAIL + LOG):
        assert unwrapped(mail.encode()) == mail.encode()


STAMP = "2026-03-11T06:00:{0:02d}.000000001Z "


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((STAMP + "a", STAMP + "b", "", STAMP + "c"), b"a\nb\n\nc\n"),
        ((STAMP + "a", STAMP + "b", "another", STAMP + "c"), None),
        (("2026-03-11T06:00:00Z a",) * 4, None),
        ((STAMP + "a",), None),
    ],
    ids=["every line", "not every line", "another form", "one line"],
)
def test_times_in_front_of_every_line(lines: tuple[str, ...], expected: bytes | None) -> None:
    content = "".join(f"{line.format(at)}\n" for at, line in enumerate(lines)).encode()
    assert unstamped(content) == (content if expected is None else expected)


JOURNAL = "Dec 01 03:14:07 {host} fit[20411]: "
TASKS = "".join(f"{task}: step {step} loss 2.{step}\n" for step in range(10, 14) for task in range(4)) + "srun: error: x\n"


@pytest.mark.parametrize("front", [JOURNAL, "2026-12-01T03:14:07.123456+0000 {host} fit@2.service[204]: "])
def test_the_journal_of_a_unit_around_tasks_of_srun_is_taken_off(front: str) -> None:
    text = "".join(f"{front.format(host='gn-1')}{line}\n" for line in TASKS.splitlines())
    assert unwrapped(text.encode()) == TASKS.encode()


@pytest.mark.parametrize(
    ("hosts", "lines"),
    [(("gn-1", "gn-2"), TASKS), (("gn-1",), TASKS.replace(": step", " step"))],
    ids=["two hosts", "no labels"],
)
def test_a_journal_of_hosts_or_without_tasks_stays(hosts: tuple[str, ...], lines: str) -> None:
    fronts = [JOURNAL.format(host=hosts[number % len(hosts)]) for number in range(lines.count("\n"))]
    text = "".join(f"{front}{line}\n" for front, line in zip(fronts, lines.splitlines(), strict=True)).encode()
    assert unwrapped(text) == text
