"""Whose lines and processes are, by what agents, pods, sessions of a shell and logs of one process state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, verdict_of
from tests.unit.case.test_process_owners import case_of

AGENT = (
    "{front}INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous complete for workers. Result:\n"
    "{front}  restart_count=0\n{front}  group_rank={node}\n{front}  local_ranks=[0, 1]\n{front}  global_ranks={ranks}\n"
)
FAILED = (
    "{front}ERROR:torch.distributed.elastic.multiprocessing.api:"
    "failed (exitcode: -11) local_rank: 1 (pid: 64) of binary: python\n"
)
TWO_AGENTS = AGENT.format(front="", node=0, ranks="[0, 1]") + AGENT.format(front="", node=1, ranks="[2, 3]")
UNIT = "Jun 11 03:02:08 n-{0} torchrun[639{0}]: "


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        (AGENT.format(front="", node=1, ranks="[2, 3]") + FAILED.format(front=""), [3]),
        (TWO_AGENTS + FAILED.format(front=""), [None]),
        (
            AGENT.format(front=UNIT.format(7), node=2, ranks="[4, 5]")
            + AGENT.format(front=UNIT.format(7), node=1, ranks="[2, 3]")
            + FAILED.format(front=UNIT.format(7)),
            [3],
        ),
        (AGENT.format(front=UNIT.format(7), node=2, ranks="[4, 5]") + FAILED.format(front=UNIT.format(8)), [None]),
        (FAILED.format(front=""), [None]),
    ],
    ids=["one agent", "logs of two agents", "numbered anew", "another agent", "no rendezvous"],
)
def test_an_agent_tells_the_ranks_of_its_node(text: str, ranks: list[int | None], tmp_path: Path) -> None:
    with case_of(tmp_path, {"job.log": text}) as case:
        assert [rank for (rank,) in case.execute("SELECT rank FROM log_events WHERE kind = 'process_exit'").fetchall()] == ranks


PODS = "NAME READY STATUS RESTARTS\nnet-worker-1   1/1   Running   0\nnet-worker-2   0/1   OOMKilled   0\n\n"
SHOWN = "$ kubectl {options} net-worker-{pod} {behind}\n  group_rank=0\n  global_ranks={ranks}\n"


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (SHOWN.format(options="-n train logs", pod=2, behind="| tail -50", ranks="[3]"), 3),
        (SHOWN.format(options="logs -f -n train", pod=2, behind="", ranks="[3]"), 3),
        (SHOWN.format(options="logs", pod=1, behind="", ranks="[3]"), None),
        (SHOWN.format(options="logs", pod=2, behind="", ranks="[3, 4]"), None),
        ("$ kubectl logs net-worker-2\n$ kubectl get events\n  global_ranks=[3]\n", None),
    ],
    ids=["behind the name space", "options of the log", "another pod", "two processes", "something else"],
)
def test_the_log_of_a_pod_tells_its_rank(text: str, rank: int | None, tmp_path: Path) -> None:
    with case_of(tmp_path, {"ticket.log": PODS + text}) as case:
        assert case.execute("SELECT rank FROM log_events WHERE subject LIKE '%137%'").fetchall() == [(rank,)]


@pytest.mark.parametrize("line", ["hello from rank {0}/4 host=n-{1} ip=10.9.0.1", "rank={0}, local_rank=0, host=n-{1}"])
def test_a_node_that_is_lost_takes_its_ranks_along(line: str, tmp_path: Path) -> None:
    text = "".join(f"{rank}: {line.format(rank, rank // 2)}\n" for rank in range(4)) + "srun: error: Node failure on n-1\n"
    (tmp_path / "slurm-7.out").write_text(text)
    (first,) = verdict_of(tmp_path).suspects
    assert (first.ranks, first.hosts) == ((2, 3), ("n-1",))


def own_log(rank: int, pid: int, end: str) -> str:
    return f"2026-02-05 22:10:00.814 INFO [n r{rank:02}] boot joined backend=gloo rank={rank}/4 pid={pid}\nwindow 3\n{end}\n"


LOST = 'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in step\n    dist.all_reduce(x)\n'
LOST += "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.60.1.22]:37727"


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["w00.log", "w01.log", "w02.log", "w03.log"], [0, 1, 2, 3]),
        (["w00.log", "w01.log", "w03.log", "w02.log"], [0, 1, None, None]),
        (["a.log", "b.log", "c.log", "d.log"], [None] * 4),
        (["w00_4.log", "w01_4.log", "w02_4.log", "w03_4.log"], [0, 1, 2, 3]),
    ],
    ids=["as they say themselves", "two called otherwise", "called by nothing", "one of two numbers differs"],
)
def test_logs_that_are_called_by_the_one_rank_they_state_are_of_it(
    names: list[str], ranks: list[int | None], tmp_path: Path
) -> None:
    files = {name: own_log(rank, 700 + rank, LOST) for rank, name in enumerate(names)}
    with case_of(tmp_path, files) as case:
        found = dict(case.execute("SELECT path, rank FROM sources").fetchall())
        stated = dict(case.execute("SELECT DISTINCT path, e.rank FROM log_events e JOIN sources USING (source_id)").fetchall())
    assert [found[name] for name in names] == ranks == [stated[name] for name in names]


def test_two_logs_of_one_rank_are_of_two_runs(tmp_path: Path) -> None:
    files = {"a/w1.log": own_log(1, 700, LOST), "b/w1.log": own_log(1, 900, LOST), "a/w2.log": own_log(2, 702, LOST)}
    with case_of(tmp_path, files) as case:
        assert case.execute("SELECT count(rank) FROM sources").fetchall() == [(0,)]


def test_a_rank_that_failed_by_itself_is_shown_by_logs_of_one_rank_each(tmp_path: Path) -> None:
    """Nothing orders the files: all others lost the one that raised something else."""
    own = 'Traceback (most recent call last):\n  File "/srv/feed.py", line 148, in pull\n    raw = read()\nfeed.FrameError: cut'
    files = {f"w0{rank}.log": own_log(rank, 700 + rank, own if rank == 2 else LOST) for rank in range(4)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert named(verdict_of(tmp_path)) == {2}
    (tmp_path / "w03.log").write_text(own_log(3, 703, "window 4"))
    assert named(verdict_of(tmp_path)) == set()


SESSION = """[root@n-2 ~]# date; py-spy dump --pid 4101   # {note}
Wed Oct 29 23:41:33 UTC 2026
Process 4101: python train.py
Thread 4101 (idle): "MainThread"
    step (train.py:5)
    <module> (train.py:12)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SESSION.format(note="rank 3"), {(4101, 3, None)}),
        (SESSION.format(note="Global rank: 3") + SESSION.format(note="rank 3, stuck?"), {(4101, 3, None)}),
        (SESSION.format(note="local_rank=3"), {(4101, None, 3)}),
        (SESSION.format(note="no rank known"), set()),
        (SESSION.format(note="rank 3") + SESSION.format(note="rank 5"), set()),
        (SESSION.format(note="?") + "# tr '\\0' '\\n' < /proc/4101/environ\nLOCAL_RANK=1\nRANK=9\n", {(4101, 9, None)}),
        (SESSION.format(note="?") + "# cat /proc/4101/environ\ndenied\nRANK=9\n", set()),
        (SESSION.format(note="?") + "# cat /proc/4101/environ /proc/4102/environ\nRANK=9\n", set()),
    ],
)
def test_what_is_noted_and_printed_in_a_session_of_a_shell(
    text: str, found: set[tuple[int, int | None, int | None]], tmp_path: Path
) -> None:
    with case_of(tmp_path, {"stacks.txt": text}) as case:
        rows = case.execute("SELECT host, pid, rank, local_rank FROM process_ranks").fetchall()
    assert {tuple(row[1:]) for row in rows} == found and {row[0] for row in rows} <= {"n-2"}


def test_a_time_of_day_behind_the_word_dump_is_no_rank(tmp_path: Path) -> None:
    with case_of(tmp_path, {"dump_0302.txt": SESSION.format(note="?")}) as case:
        assert case.execute("SELECT rank FROM stacks").fetchall() == [(None,)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rank 0 is pid 9101, rank 1 is pid 9102. I took dumps of both.", {(9101, 0), (9102, 1)}),
        ("pid 9101 is rank 0, pid 9102 is rank 1", {(9101, 0), (9102, 1)}),
        ("9101: python\npid 9101 = rank 0\nrank 1 -> pid 9102", {(9101, 0), (9102, 1)}),
        ("Rank 3 (pid 9101) looks odd", {(9101, 3)}),
        ("local rank 3 is pid 9101", set()),
        ("rank 3 pid 9101", set()),
        ("rank 3 is pid 9101\nrank 3 is pid 9102", set()),
        ("rank 3 is process 9101 and then rank 4 is pid 9101", set()),
        ("the pid of rank 3 is not known; rank 3 has 9101 lines", set()),
    ],
)
def test_what_a_note_says_in_words(text: str, found: set[tuple[int, int]], tmp_path: Path) -> None:
    note = f"No progress since 14:05.\n{text}\nYesterday it was fine.\n"
    with case_of(tmp_path, {"note.txt": note, "stacks.txt": SESSION.format(note="?")}) as case:
        assert set(case.execute("SELECT pid, rank FROM process_ranks").fetchall()) == found
