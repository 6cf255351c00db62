"""What people save of a host by hand: process tables, files of /proc, nvidia-smi as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from forensics.model import Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.ingest.reading import SAMPLES, read, sample

_SPY = """Process {pid}: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    train_step (train.py:44)
    <module> (train.py:120)
"""
_PS = (SAMPLES / "process_facts" / "handmade_ps_aux.txt").read_text()
_STOPPED = _PS.replace(" Dl ", " Tl ").replace(" Z  ", " Sl ").replace("[python3] <defunct>", "python3 train.py")


def _judged(folder: Path, texts: dict[str, str], ranks: int = 4) -> Verdict:
    for rank in range(ranks):
        (folder / f"rank{rank}.py-spy.txt").write_text(_SPY.format(pid=4240 + rank))
    for name, text in texts.items():
        (folder / name).write_text(text)
    return diagnose(open_case([folder]))


def _accused(verdict: Verdict) -> list[tuple[tuple[int, ...], str]]:
    return [(suspect.ranks, str(suspect.cause)) for suspect in verdict.suspects]


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("ps_aux", {4240: "R", 4242: "D", 4243: "Z"}),
        ("top", {4240: "R", 4242: "D"}),
        ("status", {4242: "D"}),
        ("pstree", {4240: None, 4243: None}),
    ],
)
def test_states_of_processes(name: str, states: dict[int, str | None]) -> None:
    found = sample(f"process_facts/handmade_{name}.txt")
    assert found.ingester == "process_facts" and found.problems == []
    assert {row["pid"]: row["state"] for row in found.rows("processes") if row["pid"] in states} == states
    assert all(row["rank"] is None for row in found.rows("processes"))


def test_a_kernel_stack_is_of_the_process_in_its_name() -> None:
    (row,) = sample("process_facts/handmade_stack_4242.txt").rows("processes")
    assert (row["pid"], row["wchan"], row["kernel_stack"].count("\n")) == (4242, "rpc_wait_bit_killable", 5)


def test_files_of_proc_one_after_the_other() -> None:
    text = "==> /proc/7/status <==\nName:\tpython3\nState:\tS (sleeping)\nTgid:\t7\nPid:\t7\n"
    text += "==> /proc/8/status <==\nName:\tpython3\nState:\tD (disk sleep)\nTgid:\t8\nPid:\t8\n/proc/8/wchan:nfs_wait_bit\n"
    found = {row["pid"]: (row["state"], row["wchan"]) for row in read(text.encode()).rows("processes")}
    assert found == {7: ("S", None), 8: ("D", "nfs_wait_bit")}


def test_a_second_header_is_the_next_sample() -> None:
    text = (SAMPLES / "process_facts" / "handmade_top.txt").read_bytes()
    assert [row["sample"] for row in read(text + b"\n" + text).rows("processes")] == [0, 0, 1, 1]


def test_a_process_that_a_stack_dump_knows_is_its_rank(tmp_path: Path) -> None:
    assert _accused(_judged(tmp_path, {"ps.txt": _PS})) == [((3,), "process_dead")]


def test_a_stopped_process_is_a_suspect(tmp_path: Path) -> None:
    assert _accused(_judged(tmp_path, {"ps.txt": _STOPPED})) == [((2,), "process_stopped")]


def test_the_rank_may_stand_in_its_environment(tmp_path: Path) -> None:
    rows = [f"{9000 + rank} {'T' if rank == 1 else 'S'} python3 train.py RANK={rank} WORLD_SIZE=4" for rank in range(4)]
    (tmp_path / "ps.txt").write_text("  PID STAT COMMAND\n" + "\n".join(rows) + "\n")
    assert _accused(diagnose(open_case([tmp_path]))) == [((1,), "process_stopped")]


def _launched(options: str = "", ended: str = "[python] <defunct>", absent: int = 2, shown: int = 4) -> str:
    rows = [f"4101 Sl /opt/py/bin/python -m torch.distributed.launch {options}--nproc_per_node={shown} train.py --lr 1e-4"]
    for rank in range(4):
        command = ended if rank == absent else f"/opt/py/bin/python -u train.py --local_rank={rank}"
        rows.append(f"{4110 + rank} {'Zl' if rank == absent else 'Rl'} {command}")
    return "PID STAT COMMAND\n" + "\n".join(rows) + "\n"


def test_the_one_rank_of_a_node_without_a_command_is_the_process_that_ended(tmp_path: Path) -> None:
    (tmp_path / "ps.txt").write_text(_launched(absent=1))
    assert _accused(diagnose(open_case([tmp_path]))) == [((1,), "process_dead")]


@pytest.mark.parametrize(
    "text",
    [
        _launched("--nnodes=2 --node_rank=0 "),
        _launched("--rdzv_backend=c10d "),
        _launched(shown=8),
        _launched() + "4190 Zl [python] <defunct>\n",
        _launched().replace(" train.py --lr 1e-4", ""),
        _launched() + _launched().replace("PID STAT COMMAND\n", "").replace("41", "51"),
        _launched(ended="/opt/py/bin/python -u train.py --local_rank=2").replace("Zl", "Rl"),
    ],
    ids=["one of two nodes", "a rendezvous", "more are missing", "two ended", "cut", "two launchers", "nobody ended"],
)
def test_processes_without_a_command_that_may_be_of_any_rank(tmp_path: Path, text: str) -> None:
    (tmp_path / "ps.txt").write_text(text)
    assert _accused(diagnose(open_case([tmp_path]))) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ps_rank2.txt", _STOPPED.replace(" 424", " 924")),
        ("ps.txt", _STOPPED.replace(" Tl ", " tl ")),
        ("ps.txt", "\n".join(line for line in _STOPPED.splitlines() if " 4242 " not in line)),
        ("ps.txt", _STOPPED.replace(" Tl ", " Dl ")),
    ],
    ids=["numbers of other processes", "traced while its stack was taken", "not listed", "in the kernel for a moment"],
)
def test_what_a_table_does_not_prove_accuses_nobody(tmp_path: Path, name: str, text: str) -> None:
    found = _judged(tmp_path, {name: text})
    assert found.suspects == () and found.outcome is Outcome.INCONCLUSIVE


def test_a_number_on_an_unknown_one_of_several_hosts_proves_nothing(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"node-{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"rank{rank}.py-spy.txt").write_text(_SPY.format(pid=4240 + rank))
    (tmp_path / "ps.txt").write_text(_PS)
    assert diagnose(open_case([tmp_path])).suspects == ()


def test_nvidia_smi_q_gives_the_rows_of_its_xml() -> None:
    found = sample("nvidia_smi/handmade_q.txt")
    readings = {(row["device"], row["counter"]): row["value"] for row in found.rows("counters")}
    assert readings["GPU-0", "clock_sm_mhz"] == 1980 and readings["GPU-1", "clock_sm_mhz"] == 345
    assert readings["GPU-0", "pcie_width"] == 16 and readings["GPU-0", "memory_used_bytes"] == 71234 << 20
    throttled = {(row["device"], row["text"]) for row in found.rows("device_events") if row["kind"] == "throttle"}
    assert throttled == {("GPU-1", "hw_slowdown"), ("GPU-1", "hw_thermal_slowdown")}
    assert {row["pci"] for row in found.rows("devices")} == {"0000:19:00.0", "0000:3b:00.0"}


def test_the_table_of_nvidia_smi() -> None:
    found = sample("nvidia_smi/handmade_table.txt")
    readings = {(row["device"], row["counter"]): row["value"] for row in found.rows("counters")}
    assert readings["GPU-2", "ecc_volatile_uncorrected"] == 3 and readings["GPU-0", "utilization_percent"] == 100
    events = {(row["device"], row["kind"], row["code"]) for row in found.rows("device_events")}
    assert events == {("GPU-0", "process", 4240), ("GPU-2", "process", 4242), ("GPU-3", "gpu_lost", None)}


def test_a_fan_that_does_not_answer_is_no_lost_gpu() -> None:
    text = (SAMPLES / "nvidia_smi" / "handmade_table.txt").read_text().replace("| N/A   88C", "|ERR!   88C")
    lost = [row["device"] for row in read(text.encode()).rows("device_events") if row["kind"] == "gpu_lost"]
    assert lost == ["GPU-3"]


def test_readings_that_a_gpu_lacks() -> None:
    text = (SAMPLES / "nvidia_smi" / "handmade_table.txt").read_text()
    said = re.search(r"88C +P\d+ +\d+W", text)
    assert said is not None
    found = read(text.replace(said[0], re.sub(r"\d+W", "ERR!", said[0])).encode())
    failed = [(row["device"], row["text"]) for row in found.rows("device_events") if row["kind"] == "reading_failed"]
    assert failed == [("GPU-2", "power")]
    assert not [row for row in read(text.encode()).rows("device_events") if row["kind"] == "reading_failed"]


@pytest.mark.parametrize("which", ["GPU0000:5D:00.0", "GPU 0000:5D:00.0", "GPU4: 0000:5D:00.0"])
def test_the_line_of_a_lost_gpu(which: str) -> None:
    found = read(f"Unable to determine the device handle for {which}: GPU is lost.  Reboot the system\n".encode())
    assert found.row("device_events")["kind"] == "gpu_lost"


@pytest.mark.parametrize(("why", "is_lost"), [("Unknown Error", True), ("Insufficient Permissions", False)])
def test_a_gpu_that_may_not_be_seen_is_not_lost(why: str, is_lost: bool) -> None:
    found = read(f"Unable to determine the device handle for GPU0000:5D:00.0: {why}\n".encode())
    assert bool(found.rows("device_events")) == is_lost


@pytest.mark.parametrize(
    "text",
    [
        "  PID STAT COMMAND\n",
        "PID COMMAND\nthe job was fine\n",
        "Thread 1 is waiting\n",
        "{python3}(4301)",
        "State:\tS\n",
        "status",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    found = choose(text.encode(), "notes.txt")
    assert found is None or found.name not in ("process_facts", "nvidia_smi", "python_stacks_text")


@pytest.mark.parametrize(
    "name", ["process_facts/handmade_ps_aux.txt", "nvidia_smi/handmade_q.txt", "nvidia_smi/handmade_table.txt"]
)
def test_cut_and_endless_text_is_read_as_far_as_it_goes(name: str) -> None:
    text = (SAMPLES / name).read_bytes()
    for part in range(len(text) // 3, len(text), 97):
        read(text[:part], "file")
    read(text + b"((((" * 20_000 + b"\n" + b"9" * 100_000 + b"\n" + b" " * 70_000 + b": x\n| 1 " + b"x" * 70_000 + b"\n")


def test_ibstat_and_rdma() -> None:
    found = sample("ib_counters/handmade_ibstat.txt")
    ports = {row["device"]: (row["state"], row["rate_bytes_per_s"]) for row in found.rows("devices") if row["kind"] == "port"}
    assert ports == {"mlx5_0/1": ("Active, LinkUp", 50_000_000_000), "mlx5_1/1": ("Down, Polling", 1_250_000_000)}
    counters = sample("ib_counters/handmade_rdma.txt").rows("counters")
    values = {(row["device"], row["counter"]): row["value"] for row in counters}
    assert values["mlx5_0/1", "local_ack_timeout_err"] == 3111 and values["mlx5_1/1", "out_of_sequence"] == 0


def test_text_that_is_not_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text("[Sat Nov 21 09:11:58 2026] eth0: Link Down\n")
    (tmp_path / "what we tried.txt").write_text("we restarted it twice\n")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\0")
    table = "       total  used  free  shared  buff/cache  available\nMem:     503    12   402       1          88        486\n"
    (tmp_path / "notes.md").write_text("and this came of it\n\n" * 300 + f"```\n{table}```\n")
    found = [evidence.statement for evidence in diagnose(open_case([tmp_path])).warnings if "not read" in evidence.statement]
    assert found == ["not read: 1 text files of no known form, e.g. what we tried.txt"]


@pytest.mark.parametrize(
    "heading",
    [
        "=== Rank {} ===",
        "Rank {}: http://node-1:25999",
        "# rank {}",
        "--- RANK={} ---",
        "== node-a RANK={}",
        "##### gpu-3 | rank {}",
        "=== host gpu-12, pid 4101, rank {} ===",
        "*** worker-3 global_rank {} ***",
        ">>> rank {} (gpu-12)",
        "The stack for rank{}:",
        "py-spy dump of rank {}",
        "Rank {} stack:",
        "**rank {}** (gpu-12):",
        "2. rank {} backtrace",
        "<summary>Rank {} stack</summary>",
        "Rank {} on gpu-12 shows:",
    ],
)
def test_headings_tell_the_ranks_of_stacks(tmp_path: Path, heading: str) -> None:
    other = _SPY.replace(
        "all_reduce (torch/distributed/distributed_c10d.py:2810)", "__next__ (torch/utils/data/dataloader.py:708)"
    )
    parts = [heading.format(rank) + "\n" + (other if rank == 2 else _SPY).format(pid=4240 + rank) for rank in range(4)]
    (tmp_path / "stacks_20261121_091201.txt").write_text("\n".join(parts))
    assert _accused(diagnose(open_case([tmp_path]))) == [((2,), "dataloader_stall")]


@pytest.mark.parametrize(
    "heading",
    [
        "TP{}]",
        "local rank {}",
        "rank {} waits for its peers",
        "Rank {} looks like rank 3:",
        "rank {} stack differs",
        "rank {} dumps core",
        "tp_rank {}",
        "== node_rank={} ==",
        "--rank {} --world-size 4",
        "            rank: {}",
    ],
)
def test_what_is_no_heading_of_a_rank_is_none(heading: str) -> None:
    found = read((heading.format(2) + "\n" + _SPY.format(pid=4242)).encode(), "stacks.txt")
    assert all(row.get("rank") is None for row in found.rows("stacks"))


@pytest.mark.parametrize(
    "heading", ["The stack for all other ranks:", "## the other 3 ranks", "Stacks of the remaining workers:"]
)
def test_stacks_of_the_others_are_not_of_the_rank_above(heading: str) -> None:
    text = "The stack for rank2:\n" + _SPY.format(pid=4242) + heading + "\n" + _SPY.format(pid=4243)
    found = read(text.encode(), "stacks.txt").rows("stacks")
    assert {row["pid"]: row.get("rank") for row in found} == {4242: 2, 4243: None}


def test_an_analysis_of_the_recorder_alone_in_a_file(tmp_path: Path) -> None:
    text = "Not all ranks joining collective, sequence number: 5\ngroup info: 0:default_pg\ncollective: nccl:all_reduce\n"
    (tmp_path / "analysis.txt").write_text(text + "missing ranks: {2}\nworld size: 4\nexpected ranks: {0, 1, 2, 3}\n")
    assert [suspect.ranks for suspect in diagnose(open_case([tmp_path])).suspects] == [(2,)]
