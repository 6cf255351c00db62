"""Channels of Slack and pages of a wiki that somebody saved: what was pasted there is evidence, what is quoted there is not."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from forensics.errors import ForensicsError
from tests.recordings.verdicts import named, verdict_of

LOG = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "t.py", line 9, in <module>\n'
    "[rank2]: OSError: [Errno 5] Input/output error: '/mnt/shard <7>'\n"
    + "".join(
        f"[rank{rank}]:[E1019 22:41:01.0 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600042 milliseconds before "
        "timing out.\n"
        for rank in (0, 1, 3)
    )
)


def message(number: int, text: str) -> dict[str, str]:
    return {"type": "message", "user": "U02AB", "ts": f"17609136{number:02d}.002", "text": html.escape(text, quote=False)}


@pytest.mark.parametrize("is_answer", [False, True], ids=["of a day", "of the API, newest first"])
def test_a_log_in_a_channel_that_was_exported(tmp_path: Path, is_answer: bool) -> None:
    chat = [message(10, "run 88 is stuck again"), message(20, f"```{LOG}```"), message(30, "looking")]
    saved = {"ok": True, "messages": chat[::-1]} if is_answer else chat
    (tmp_path / "channel.json").write_text(json.dumps(saved, indent=1))
    assert named(verdict_of(tmp_path)) == {2}


def test_a_table_in_a_channel_that_was_exported(tmp_path: Path) -> None:
    """The file begins as a table does that somebody saved: a box stands among the first bytes."""
    cards = "".join(
        f"|   {n}  NVIDIA A100-SXM4-80GB          On  | 00000000:{n + 1}0:00.0 Off |                    0 |\n"
        f"| N/A   43C    P0             188W / 400W  |  70211MiB / 81920MiB |    {0 if n == 5 else 100:3d}%      Default |\n"
        for n in range(8)
    )
    head = "| NVIDIA-SMI 535.161.08   Driver Version: 535.161.08   CUDA Version: 12.2     |\n"
    chat = [message(10, "stuck at step 2210"), message(20, f"```+---+\n{head}+---+\n{cards}+---+\n```\nfor 10 min")]
    (tmp_path / "channel.json").write_text(json.dumps(chat, indent=1))
    assert any("GPU-5, which is idle while 7 others are busy" in lead for lead in verdict_of(tmp_path).leads)


def page(block: str) -> str:
    shown = f"<p>When you see</p><pre>{html.escape(block)}</pre><p>restart.</p>"
    return f"<!DOCTYPE html>\n<html><body><h1>Hangs</h1>{shown}</body></html>\n"


def test_a_page_that_quotes_a_few_lines_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "hangs.html").write_text(page(LOG))
    with pytest.raises(ForensicsError, match="no evidence"):
        verdict_of(tmp_path)


def test_a_console_that_was_saved_as_a_page_is_read(tmp_path: Path) -> None:
    steps = "".join(f"step {step}/900 loss 2.{step}\n" for step in range(20, 60))
    (tmp_path / "console.html").write_text(page(steps + LOG))
    assert named(verdict_of(tmp_path)) == {2}


POST = '<div class="topic-body"><p>{0}</p></div>\n'


def thread(title: str = "stuck since Monday", answer: str = "what is rank 2 doing?", log: str = LOG) -> str:
    shown = POST.format("we see</p><pre><code>" + html.escape(log) + "</code></pre><p>any idea?")
    return f"<!DOCTYPE html>\n<html><head><title>{title}</title></head><body>{shown}{POST.format(answer)}</body></html>\n"


def test_what_somebody_shows_in_a_thread_that_was_saved_as_a_page(tmp_path: Path) -> None:
    (tmp_path / "thread.html").write_text(thread())
    assert named(verdict_of(tmp_path)) == {2}


def test_what_a_thread_says_of_its_end_counts(tmp_path: Path) -> None:
    done = "solved</p><pre>{'loss': 0.52, 'epoch': 0.99}\n{'train_runtime': 912.4, 'train_samples_per_second': 12.1}</pre><p>"
    (tmp_path / "thread.html").write_text(
        thread(answer=done, log="{'loss': 0.71, 'epoch': 0.37}\n" + LOG[: LOG.index("[rank0]")])
    )
    assert not named(verdict_of(tmp_path))


def test_comments_below_instructions_make_no_thread(tmp_path: Path) -> None:
    (tmp_path / "hangs.html").write_text(thread("Troubleshooting hangs"))
    with pytest.raises(ForensicsError, match="no evidence"):
        verdict_of(tmp_path)


def test_what_others_met_in_jobs_of_their_own_is_not_of_the_job_of_a_thread(tmp_path: Path) -> None:
    theirs = "same issue here</p><pre>" + html.escape(LOG.replace("[rank2]", "[rank1]")) + "</pre><p>"
    (tmp_path / "thread.html").write_text(thread(answer=theirs))
    assert named(verdict_of(tmp_path)) == {2}
    lost = LOG[: LOG.index("[rank0]")]
    (tmp_path / "thread.html").write_text(thread(answer=theirs, log=LOG.replace(lost, "")))
    assert not named(verdict_of(tmp_path))


def test_what_an_answer_shows_has_not_happened_in_the_job_that_was_asked_about(tmp_path: Path) -> None:
    lost = LOG[: LOG.index("[rank0]")]
    asked, shown = html.escape(LOG.replace(lost, "")), html.escape(lost)
    answer = f'<div class="answer"><p>I have seen</p><pre>{shown}</pre></div>'
    text = f'<!DOCTYPE html><html><body><div class="question"><p>it hangs</p><pre>{asked}</pre></div>{answer}</body></html>'
    (tmp_path / "question.html").write_text(text)
    assert not named(verdict_of(tmp_path))
