"""Tickets: outputs of commands pasted below lines of a job's log, in one text."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.database import Connection
from tests.recordings.verdicts import named, verdict_of

LOG = "".join(f" iteration {n:6}/ 60000 | elapsed time per iteration (ms): 6103.5 | lm loss: 2.1E+00 |\n" for n in range(30))
RAS = """NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (5c1e07d2a7712e93) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 14882
  1 ranks have launched up to operation 14881
  Rank 2 -- GPU 2 managed by process 771204 on node 10.44.12.63
"""
FREE = (
    "               total        used        free      shared  buff/cache   available\n"
    "Mem:             503          12         402           1          88         486\n"
)
COMMAND = "{prompt}echo verbose status | nc localhost 28028\n"


def case_of(text: str, folder: Path, name: str = "ticket.txt") -> Connection:
    (folder / name).write_text(text)
    return open_case([folder / name])


def kinds(case: Connection) -> list[str]:
    return [kind for (kind,) in case.execute("SELECT kind FROM sources ORDER BY kind").fetchall()]


@pytest.mark.parametrize("prompt", ["$ ", "oncall@login2:~$ ", "[root@n-2 ~]# ", "n-2:~ # "])
def test_a_report_below_a_command_is_read_in_its_place(prompt: str, tmp_path: Path) -> None:
    text = LOG + COMMAND.format(prompt=prompt) + RAS
    with case_of(text, tmp_path) as case:
        assert kinds(case) == ["nccl_ras", "training_log"]
        assert case.execute("SELECT DISTINCT path FROM sources").fetchall() == [("ticket.txt",)]
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {2}
    assert verdict.suspects[0].evidence[0].source == f"ticket.txt#line={text[: text.index('  Rank 2')].count(chr(10)) + 1}"


RAISED = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "t.py", line 9, in <module>\n[rank1]: ValueError: bad\n'


def _coloured(text: str) -> str:
    return "".join(f"\x1b[36m{line}\x1b[0m\n" if line else "\n" for line in text.splitlines())


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("above", "below", "written"),
    [
        ("", LOG + RAISED, str),
        ("", LOG + RAISED, lambda text: text.replace("\n", "\r\n")),
        ("", LOG + RAISED, _coloured),
        (LOG + RAISED, "", str),
        (LOG, RAISED, str),
    ],
)
def test_the_log_around_a_report_without_a_command(
    above: str, below: str, written: Callable[[str], str], tmp_path: Path
) -> None:
    """Ends of lines of Windows and colours change nothing."""
    with case_of(written(above + RAS + below), tmp_path) as case:
        assert kinds(case) == ["nccl_ras", "training_log"]
        raised = case.execute("SELECT locator FROM log_events WHERE kind = 'exception'").fetchall()
    assert raised == [((above + RAS + below).splitlines().index("[rank1]: ValueError: bad") + 1,)]


@pytest.mark.parametrize(("times", "logs"), [(1, 2), (9, 1)], ids=["its beginning is that of a report", "a log as a whole"])
def test_several_outputs_one_after_the_other(times: int, logs: int, tmp_path: Path) -> None:
    text = LOG * times + COMMAND.format(prompt="$ ") + RAS + "$ free -g\n" + FREE + "$ tail train.log\n" + LOG
    with case_of(text, tmp_path) as case:
        assert kinds(case) == ["memory_use", "nccl_ras", *["training_log"] * logs]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ticket.txt", 9 * LOG + RAS),
        ("ras.txt", RAS),
        ("ticket.txt", LOG + "$ cat notes\nnothing of a known form\n"),
        ("ras.txt", COMMAND.format(prompt="$ ") + RAS),
        ("huge.log", LOG + COMMAND.format(prompt="$ ") + RAS + "x" * (1 << 20)),
    ],
    ids=["no command", "a report alone", "nothing known", "of one kind as a whole", "too long for a ticket"],
)
def test_what_stays_one_text(name: str, text: str, tmp_path: Path) -> None:
    with case_of(text, tmp_path, name) as case:
        assert len(kinds(case)) == 1


def test_a_part_that_is_cut_warns_with_the_line_of_the_file(tmp_path: Path) -> None:
    before = LOG + "$ free -g\n"
    with case_of(before + FREE[:-60], tmp_path) as case:
        lines = [locator for (locator,) in case.execute("SELECT locator FROM ingest_warnings").fetchall() if locator]
    assert all(int(line.removeprefix("line=")) > before.count("\n") - 1 for line in lines)


TABLE = """Tue Nov 24 03:41:10 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:4C:00.0 Off |                    0 |
| N/A   41C    P0            118W /  700W |   70012MiB /  81559MiB |    100%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

"""
KERNEL = """[root@node-3 ~]# dmesg -T | tail
[Tue Nov 24 03:13:52 2026] NVRM: Xid (PCI:0000:4c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
"""
ENDED = """[rank5]: Traceback (most recent call last):
[rank5]:   File "/workspace/train.py", line 178, in main
[rank5]:     loss = model(batch).loss
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


@pytest.mark.parametrize("text", [TABLE + LOG + ENDED, LOG + ENDED + TABLE, LOG + ENDED + "$ nvidia-smi\n" + TABLE])
def test_the_log_around_a_table_without_prompts_is_read(text: str, tmp_path: Path) -> None:
    case = case_of(text, tmp_path)
    assert kinds(case) == ["nvidia_smi", "training_log"]
    line = text[: text.index("OutOfMemoryError")].count("\n") + 1
    assert case.execute("SELECT DISTINCT rank, locator <= ? AND locator > ? - 4 FROM log_events", [line, line]).fetchall() == [
        (5, True)
    ]


@pytest.mark.parametrize("text", [TABLE + KERNEL, KERNEL + "[root@node-3 ~]# nvidia-smi\n" + TABLE, LOG[:300] + TABLE + KERNEL])
def test_a_kernel_log_beside_a_table_is_read(text: str, tmp_path: Path) -> None:
    found = case_of(text, tmp_path).execute("SELECT kind FROM log_events WHERE kind = 'xid'").fetchall()
    assert found == [("xid",)]


def test_what_is_quoted_of_a_kernel_log_is_not_called_uncollected(tmp_path: Path) -> None:
    (tmp_path / "ticket.txt").write_text(TABLE + KERNEL)
    kernel = [text for text in verdict_of(tmp_path / "ticket.txt").not_checked if text.startswith("kernel log")]
    assert len(kernel) == 1 and kernel[0].endswith(": lines quoted elsewhere only")


def test_blocks_of_a_page_are_read_each_by_its_form(tmp_path: Path) -> None:
    page = f"We asked it:\n\n```\n{RAS}\n```\n\nand then\n\n```\n[rank5]: torch.OutOfMemoryError: CUDA out of memory.\n```\n"
    case = case_of(page, tmp_path)
    assert kinds(case) == ["nccl_ras", "training_log"]
    line = page[: page.index("OutOfMemoryError")].count("\n") + 1
    assert case.execute("SELECT rank, locator FROM log_events WHERE kind = 'exception'").fetchall() == [(5, line)]


def steps(first: int, last: int) -> str:
    return "".join(f"2025-11-12 16:0{n}:04 step={n} loss=1.8677 tps=118384\n" for n in range(first, last))


@pytest.mark.parametrize(("below", "blamed"), [(steps(4, 8), set()), (steps(4, 6), {2}), (steps(1, 4), {2}), ("", {2})])
def test_a_difference_in_a_report_above_steps_that_follow_is_one_of_a_moment(
    below: str, blamed: set[int], tmp_path: Path
) -> None:
    (tmp_path / "ticket.txt").write_text(
        f"$ tail -n 4 rank0.log\n{steps(1, 4)}$ ncclras -v\n{RAS}\n$ tail -n 4 rank0.log\n{below}"
    )
    assert named(verdict_of(tmp_path)) == blamed


ACTOR = (
    "(TaskRunner pid=8) {'n_gpus_per_node': 8, 'nnodes': 2}\n"
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict\n\tpid: 1230\n\tname: g7SufjWorkerDict_1:6\n"
    "\tip: 10.29.214.6\nThe actor is dead because its worker process has died.\n"
)
PODS = """Name:             j-worker-0
Namespace:        x
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Ready:  False
    Limits:
      nvidia.com/gpu:  1
    Environment:
      WORLD_SIZE:  2
      RANK:        1
Name:             j-master-0
Namespace:        x
    State:          Running
    Limits:
      nvidia.com/gpu:  1
    Environment:
      WORLD_SIZE:  2
      RANK:        0
"""


def _with(front: str, text: str) -> str:
    return "".join(front + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize("front", ["", "> ", "trainer-1   | ", "[pod/head-0/c] ", "2026-03-21T02:04:11.000000001Z "])
def test_what_stands_in_front_of_all_lines_changes_nothing(tmp_path: Path, front: str) -> None:
    (tmp_path / "run.log").write_text(_with(front, ACTOR))
    assert named(verdict_of(tmp_path)) == {14}


@pytest.mark.parametrize("front", ["", "> "])
def test_a_pasted_description_of_pods_whatever_it_is_packed_in(tmp_path: Path, front: str) -> None:
    (tmp_path / "pods.txt.gz").write_bytes(gzip.compress(_with(front, PODS).encode()))
    assert named(verdict_of(tmp_path)) == {1}


def test_a_text_that_quotes_some_of_its_lines_is_no_quote(tmp_path: Path) -> None:
    assert kinds(
        case_of("> " + COMMAND.format(prompt="$ ") + _with("> ", RAS) + "I see nothing odd here\n" + LOG, tmp_path)
    ) == ["training_log"]


STEP = "epoch 1 iter {0}/900 loss 1.4\n"
ENDED = "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\n    main()\nKeyError: 'ids'\n"
LOST = ENDED.rpartition("KeyError")[0] + "RuntimeError: [1] Connection closed by peer [10.1.0.7]:4431\n"


def files() -> dict[str, str]:
    steps = "".join(STEP.format(number) for number in range(5))
    return {f"train_rank{rank}.log": steps + (ENDED if rank == 2 else LOST) for rank in range(3)}


def fenced(title: str) -> str:
    blocks = "".join(f"{title.format(name)}\n\n```text\n{text}```\n\n" for name, text in files().items())
    return f"Hi all, the job from last night did not finish:\n\n{blocks}Thanks!\n"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"==> {name} <==\n{text}\n" for name, text in files().items()),
        *map(fenced, ("`{}`:", "### {}", "**logs/{}**", "<summary>{}</summary>")),
    ],
    ids=["head", "code", "heading", "bold", "folded"],
)
def test_files_below_their_names_are_read_one_by_one(tmp_path: Path, text: str) -> None:
    case = case_of(text, tmp_path, "ticket.md")
    rows = case.execute(
        "SELECT path, rank FROM sources WHERE kind = 'training_log' AND rank IS NOT NULL ORDER BY rank"
    ).fetchall()
    assert [(path.rpartition("/")[2], rank) for path, rank in rows] == [(name, rank) for rank, name in enumerate(files())]
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize(
    "title",
    [
        "rank {}:",
        "### Rank {}",
        "**rank {}** (gx-7):",
        "Rank {} log",
        "rank {} 日志：",
        "rank={}/3 stderr:",
        "`rank {}` on gx-7:",
        "### rank {} – gx-7",
        "Output of rank {} on node gx-2:",
        "[09:14] ana: rank #{}",
    ],
)
def test_logs_below_lines_that_name_their_ranks_are_of_these(tmp_path: Path, title: str) -> None:
    blocks = "".join(f"{title.format(rank)}\n```\n{text}```\n" for rank, text in enumerate(files().values()))
    (tmp_path / "ticket.md").write_text(f"It ended last night.\n\n{blocks}")
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize(
    "title", ["local rank {}:", "node {}:", "rank {} and its peers:", "all but rank {}:", "rank 1:", "ranks 0 and {}:"]
)
def test_logs_below_other_lines_stay_one_text(tmp_path: Path, title: str) -> None:
    blocks = "".join(f"{title.format(rank)}\n```\n{text}```\n" for rank, text in enumerate(files().values()))
    assert kinds(case_of(blocks, tmp_path, "ticket.md")) == ["training_log"]


DMON = (
    "$ nvidia-smi dmon -s pu -c 1\n# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n"
    "# Idx      W      C      C      %      %    MHz    MHz\n"
)


def test_a_table_of_a_monitor_whose_heading_looks_like_a_command(tmp_path: Path) -> None:
    gpus = "".join(f"    {gpu}    640     58     66    99     40   2619   {345 if gpu == 2 else 1980}\n" for gpu in range(4))
    text = f"$ tail job.log\n{''.join(STEP.format(number) for number in range(5))}{DMON}{gpus}$ exit\n"
    assert kinds(case_of(text, tmp_path, "ticket.txt")) == ["gpu_table", "training_log"]


LOGGED = {
    "one a line": "{0}",
    "a list": "[{0}]",
    "named": '{{"hits": [{0}]}}',
}


def record(minute: int, rank: int, text: str) -> str:
    return json.dumps({"ts": f"2026-11-30T10:{minute:02d}:11Z", "level": "error", "rank": rank, "msg": text})


@pytest.mark.parametrize("form", LOGGED)
def test_records_in_a_block_of_a_ticket_are_the_lines_that_were_logged(tmp_path: Path, form: str) -> None:
    raised, gone = ENDED.strip(), LOST.strip()
    records = [record(1, 2, raised), *(record(3, rank, gone) for rank in (0, 1))]
    block = LOGGED[form].format(("\n" if form == "one a line" else ",\n").join(records))
    (tmp_path / "ticket.md").write_text(f"# It ended\n\n```json\n{block}\n```\n\nIs it the loader?\n")
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize("block", ['{"learning_rate": 1e-4, "layers": 12}', '{"a": 1}\n{"a": 2}\n{"a": 3}', "{}"])
def test_other_objects_in_a_block_stay_what_they_are(tmp_path: Path, block: str) -> None:
    text = f"{''.join(STEP.format(number) for number in range(5))}\n```json\n{block}\n```\n"
    paths = case_of(text, tmp_path, "ticket.md").execute("SELECT path FROM sources").fetchall()
    assert [path for (path,) in paths] == ["ticket.md"]


@pytest.mark.parametrize("title", ["the first one", "see https://example.org for more", "all of train_rank1.log and more"])
def test_blocks_without_names_stay_one_text(tmp_path: Path, title: str) -> None:
    case = case_of(fenced(title.replace("{}", "")), tmp_path, "ticket.md")
    assert kinds(case) == ["training_log"]


def test_one_name_twice_is_one_text(tmp_path: Path) -> None:
    text = fenced("`{}`:").replace("train_rank1.log", "train_rank0.log")
    assert kinds(case_of(text, tmp_path, "ticket.md")) == ["training_log"]


ONE = "".join(f"[rank{rank}]: ValueError: no\n" if rank == 1 else f"[rank{rank}]: ncclRemoteError: gone\n" for rank in range(3))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe" + ONE.replace("\n", "\r\n").encode("utf-16-le"),
        b"\xfe\xff" + ONE.encode("utf-16-be"),
        b"".join(b"    " + line for line in ONE.encode().splitlines(keepends=True)),
        b"".join(b"job-1  | " + line for line in ONE.encode().splitlines(keepends=True)),
    ],
    ids=["utf-16", "utf-16, other order", "indent", "container"],
)
def test_texts_are_read_as_they_stood_before_they_were_saved(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job.txt").write_bytes(content)
    assert named(verdict_of(tmp_path)) == {1}


@pytest.mark.parametrize("mark", ["==> Installing torch\n", "x ==> rank0.log <==\n", "==> rank0.log <==\n", "```\n", "~~~\n"])
def test_marks_that_begin_no_file_change_nothing(tmp_path: Path, mark: str) -> None:
    (tmp_path / "job.txt").write_text(mark + ONE)
    assert named(verdict_of(tmp_path)) == {1}


def test_two_marks_that_are_no_text_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\xff\xfe\x00\x00" * 40)
    (tmp_path / "job.log").write_text(ONE)
    assert named(verdict_of(tmp_path)) == {1}


RUNBOOK = "# Runbook: NCCL hang\n\nThe log has a line like\n\n```\n{}```\n\nThat rank is a victim.\n"


@pytest.mark.parametrize(("text", "is_read"), [(RUNBOOK.format(ONE[:60] + "\n"), False), (RUNBOOK.format(ONE * 2), True)])
def test_instructions_that_quote_a_message_are_no_evidence(tmp_path: Path, text: str, is_read: bool) -> None:
    (tmp_path / "page.md").write_text(text)
    (tmp_path / "job.log").write_text(LOG)
    assert ("training_log" in kinds_of(tmp_path, "page.md")) is is_read


@pytest.mark.parametrize(("name", "is_read"), [("ops/RUNBOOK_gpu.md", False), ("what to do.md", False), ("ticket-88.md", True)])
def test_instructions_are_known_by_their_name_or_title(tmp_path: Path, name: str, is_read: bool) -> None:
    title = "What to do when it hangs" if name.startswith("what") else "GPU hang"
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(RUNBOOK.format(ONE[:60] + "\n").replace("Runbook: NCCL hang", title))
    (tmp_path / "job.log").write_text(LOG)
    assert ("training_log" in kinds_of(tmp_path, ".md")) is is_read


CHAPTER = "# Debugging\n\n" + "".join(
    f"## Case {number}\n\n" + "This happens when a rank is late.\n" * 10 + f"\n```\n{ONE}```\n\n" for number in range(9)
)
THREAD = "# It hangs\n\n" + "".join(f"## Comment {number}\n\nHere it is.\n\n```\n{ONE * 6}```\n\n" for number in range(9))


@pytest.mark.parametrize(("text", "is_read"), [(CHAPTER, False), (THREAD, True), (f"# It hangs\n\n```\n{ONE}```\n", True)])
def test_a_chapter_of_a_book_is_no_evidence(tmp_path: Path, text: str, is_read: bool) -> None:
    (tmp_path / "page.md").write_text(text)
    (tmp_path / "job.log").write_text(LOG)
    assert ("training_log" in kinds_of(tmp_path, "page.md")) is is_read


MENTIONS = "# Lines that are read\n\n| line | who |\n|---|---|\n| `{0}` | rank |\n\n- Such as `{0}` of a watchdog.\n\n{1}"


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        ("", set()),
        (f"```\n{ONE}```\n", {1}),
        (f"`job_rank2.log` and\n\n```\n{ONE}```\n", {1}),
        ("".join(f"`{line}`\n" for line in ONE.splitlines()), {1}),
    ],
    ids=["mentioned only", "a block of code", "a name", "lines that are spans"],
)
def test_code_spans_between_words_have_not_happened(tmp_path: Path, below: str, expected: set[int]) -> None:
    (tmp_path / "page.md").write_text(MENTIONS.format(ONE.splitlines()[0], below))
    (tmp_path / "job.log").write_text("step 4 loss 2.1\n")
    assert named(verdict_of(tmp_path)) == expected


def kinds_of(folder: Path, name: str) -> list[str]:
    return [kind for kind, path in open_case([folder]).execute("SELECT kind, path FROM sources").fetchall() if name in path]
