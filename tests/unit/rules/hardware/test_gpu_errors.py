"""Xids of the kernel log: whose GPU it is, and when such an error explains a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.database import insert_rows
from forensics.model import Cause, Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from tests.recordings.collection import Collection, iso_time, pid_of, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import ALL_REDUCE, LOADER_QUEUE, Place
from tests.recordings.verdicts import leaders, named, verdict_of

LOST = "79, pid={pid}, name=python, GPU has fallen off the bus."


def job(*, absent: int | None = None) -> Job:
    """Everybody is inside a reduction of which nobody comes out, or waits for the one that has not come."""
    found = Job(4, "nccl")
    found.steps(4)
    found.pause(20 * SECOND)
    found.steps(4)
    found.call(found.everyone, ranks=[rank for rank in range(4) if rank != absent], done=False)
    return found


def collected(*lines: str, absent: int | None = None, place: Place = ALL_REDUCE) -> Collection:
    """A whole collection with a kernel log."""
    found = whole(job(absent=absent), {} if absent is None else {absent: place})
    found.kernel_log("[    9.000001] Linux version 6.8.0", *lines)
    return found


def xid(text: str, rank: int = 2, after_s: float = 1.0, address: str = "0000:3b:00") -> str:
    """A line that the journal dates, so many seconds after the last call was made."""
    when = iso_time(job().now_ns + int(after_s * SECOND))
    return f"{when} gpu-017 kernel: NVRM: Xid (PCI:{address}): {text.format(pid=pid_of(rank))}"


def test_the_failed_gpu_is_named_where_the_calls_cannot_tell_its_group_apart(tmp_path: Path) -> None:
    (first,) = leaders(verdict_of(collected(xid(LOST)).write(tmp_path)))
    assert (first.ranks, first.cause, first.rules, first.confidence) == (
        (2,),
        Cause.GPU_FAULT,
        ("FX147", "FX140"),
        Confidence.LIKELY,
    )
    assert first.resource is not None
    assert first.resource.gpu == "0000:3b:00"


def test_the_stage_is_that_of_the_first_call_which_its_device_is_to_come_to(tmp_path: Path) -> None:
    """Who else is behind it may have made its calls in another order; nobody is said to have launched them wrongly."""
    found, line = Job(4, "nccl"), xid(LOST)
    first, second = found.group(range(4), "EXPERT"), found.group(range(4), "DATA")
    for _ in range(8):
        found.call(first, "all_to_all", started=True)
        found.call(second, "all_reduce", started=True)
    for rank in range(4):
        calls = [(first, "all_to_all"), (second, "all_reduce")]
        for number, (group, kind) in enumerate(reversed(calls) if rank == 2 else calls):
            found.call(group, kind, [rank], done=False, started=rank != 2 and number == 0)
    whole_of = whole(found, {})
    whole_of.kernel_log("[    9.000001] Linux version 6.8.0", line)
    (only,) = verdict_of(whole_of.write(tmp_path)).suspects
    assert (only.ranks, only.cause, only.stage.operation) == ((2,), Cause.GPU_FAULT, "all_reduce")


INIT = (
    "n1:37{0}:48{0} [{0}] NCCL INFO ncclCommInitRank comm 0x5{0} rank {0} nranks {1} cudaDev {0} nvmlDev {0} busId {0}d000 "
    "commId 0x9f - Init COMPLETE\n"
)
CORRUPT = "[76914.190122] amdgpu 0000:2d:00.0: amdgpu: 2 new uncorrectable hardware errors detected in umc block\n"


def logged(folder: Path, raised: str, world: int = 4) -> tuple[tuple[int, ...], Cause]:
    """Who is named, and the cause, where rank 2 of a host raised this and the kernel log of a host names its device."""
    init = "".join(INIT.format(rank, world) for rank in range(4))
    (folder / "job.log").write_text(f"{init}[rank2]: {raised}\n[rank1]: ncclRemoteError: remote process exited\n")
    (folder / "dmesg.txt").write_text(CORRUPT)
    (first,) = leaders(verdict_of(folder))
    return first.ranks, first.cause


def test_the_gpu_of_a_rank_that_ended_by_an_error_of_its_device(tmp_path: Path) -> None:
    assert logged(tmp_path, "RuntimeError: HIP error: unspecified launch failure") == ((2,), Cause.GPU_FAULT)


@pytest.mark.parametrize(
    ("raised", "world"),
    [("KeyError: 'boxes'", 4), ("RuntimeError: HIP error: unspecified launch failure", 8)],
    ids=["an error of its program", "of a host of two, which may be the other one"],
)
def test_an_error_of_a_gpu_that_may_have_ended_nothing(tmp_path: Path, raised: str, world: int) -> None:
    assert logged(tmp_path, raised, world) == ((2,), Cause.PYTHON_EXCEPTION)


LOST_IT = (
    "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was a "
    "network error, NCCL version 2.21.5\n"
)
OWN = "[rank{0}]: Traceback (most recent call last):\n[rank{0}]: ValueError: batch of 31\n"


@pytest.mark.parametrize(
    ("code", "said", "ranks"),
    [
        (48, {0: LOST_IT, 1: LOST_IT, 3: LOST_IT}, {2}),
        (31, {0: LOST_IT, 1: LOST_IT, 3: LOST_IT}, set()),
        (48, {0: LOST_IT, 1: LOST_IT, 2: LOST_IT, 3: LOST_IT}, set()),
        (48, {0: LOST_IT, 1: LOST_IT}, set()),
        (48, {0: LOST_IT, 1: OWN, 3: LOST_IT}, {1}),
    ],
    ids=["all others", "what a program can cause", "it too", "of one nothing is heard", "another one ended by itself"],
)
def test_a_failed_gpu_of_the_one_rank_that_all_others_lost(
    tmp_path: Path, code: int, said: dict[int, str], ranks: set[int]
) -> None:
    start = "".join(
        f"h{rank // 2}:{70 + rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 4 cudaDev {rank % 2} "
        f"busId {('1b', '5c')[rank % 2]}000 commId 0x7 - Init COMPLETE\n"
        for rank in range(4)
    )
    (tmp_path / "train.log").write_text(start + "".join(text.format(rank) for rank, text in said.items()))
    kernel = f"2026-03-12T03:14:07+0000 h1 kernel: NVRM: Xid (PCI:0000:1b:00): {code}, pid=72, name=python3, error\n"
    (tmp_path / "kern.txt").write_text(kernel)
    assert named(verdict_of(tmp_path)) == ranks


def test_what_amdgpu_could_not_correct_is_pointed_at(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("HW Exception by GPU node-6 (Agent handle: 0x55d6d2a51c40) reason :GPU Hang\n")
    said = "amdgpu 0000:2d:00.0: amdgpu: 2 new uncorrectable hardware errors detected in umc block"
    (tmp_path / "dmesg.txt").write_text(f"[76914.190122] {said}\n")
    assert any("GPU 0000:2d:00" in label.reason for label in verdict_of(tmp_path).labels)


@pytest.mark.parametrize(
    "line",
    [
        xid(LOST, after_s=-3600),
        xid(LOST, after_s=-12),
        xid("45, pid={pid}, name=python, Ch 00000008"),
        xid("63, pid={pid}, name=python, Row Remapper: New row marked for remapping"),
        xid("79, pid=1, name=Xorg, GPU has fallen off the bus."),
        f"[    12.000001] NVRM: Xid (PCI:0000:3b:00): 31, pid={pid_of(2)}, name=python, MMU Fault",
    ],
    ids=[
        "before the job",
        "its rank went on",
        "brought by another",
        "repaired",
        "of no process of the job",
        "a program's, and undated",
    ],
)
def test_errors_that_name_no_rank(line: str, tmp_path: Path) -> None:
    assert "FX147" not in rules(verdict_of(collected(line).write(tmp_path)))


def rules(verdict: Verdict) -> set[str]:
    return {rule for suspect in verdict.suspects for rule in suspect.rules}


def test_an_error_of_a_rank_that_waits_for_another_is_not_its_cause(tmp_path: Path) -> None:
    verdict = verdict_of(collected(xid(LOST), absent=1, place=LOADER_QUEUE).write(tmp_path))
    assert named(verdict) == {1}
    assert any("does not explain" in label.reason for label in verdict.labels)


def without_rank_1(line: str) -> Collection:
    """A collection of the other three, which are all inside one call, with a line of the kernel log."""
    found = Collection(4, collected().at_ns)
    recorded = job(absent=1)
    for rank in (0, 2, 3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[ALL_REDUCE] * 3)
        found.dump(recorded, rank)
    found.kernel_log("[    9.000001] Linux version 6.8.0", line)
    return found


@pytest.mark.parametrize(
    ("text", "ranks", "sure"),
    [
        (LOST, {2}, True),
        ("109, pid={pid}, name=python, errorString CTX SWITCH TIMEOUT", {2}, False),
        ("31, pid={pid}, name=python, MMU Fault", set(), False),
    ],
    ids=["lost", "what a program can cause", "what a peer can cause"],
)
def test_a_gpu_with_an_error_of_its_own_is_named_beside_a_rank_of_which_nothing_is_seen(
    text: str, ranks: set[int], sure: bool, tmp_path: Path
) -> None:
    """Rank 1 was not collected: it may be inside the same call, held up by the GPU that is lost, or be late itself."""
    found = without_rank_1(xid(text))
    verdict = verdict_of(found.write(tmp_path))
    failed = [suspect for suspect in verdict.suspects if suspect.cause is Cause.GPU_FAULT]
    assert {each for suspect in failed for each in suspect.ranks} == ranks
    assert all((suspect.confidence is not Confidence.SUSPECT) is sure for suspect in failed)


@pytest.mark.parametrize(("host", "first"), [("gpu-017", {1}), ("gpu-018", {2})], ids=["of its host", "of another host"])
def test_what_a_peer_can_cause_is_an_echo_of_gpus_of_the_same_host_only(host: str, first: set[int], tmp_path: Path) -> None:
    """An error of an NVLink; of rank 1 nothing is seen, and it may be inside the same call. Neither is sure."""
    found = without_rank_1(xid("74, pid={pid}, name=python, NVLink: fatal error detected on link 3"))
    connection = open_case([found.write(tmp_path)])
    insert_rows(connection, "ranks", "source_id rank host", [(0, 1, host)])
    suspects = diagnose(connection).suspects
    assert set(suspects[0].ranks) == first
    assert {suspect.confidence for suspect in suspects if suspect.ranks == (1,)} <= {Confidence.SUSPECT}


@pytest.mark.parametrize(("text", "at_work", "ranks"), [
    (LOST, False, {2}), (LOST, True, set()), ("109, pid={pid}, name=python, errorString CTX SWITCH TIMEOUT", False, set()),
], ids=["lost", "a rank that was seen is late", "what a program can cause"])  # fmt: skip
def test_a_lost_gpu_is_named_whose_peers_wait_for_a_rank_of_which_nothing_is_seen(
    text: str, at_work: bool, ranks: set[int], tmp_path: Path
) -> None:
    """Rank 2 waits for rank 3 in a pair, and that one for rank 1, which was not collected."""
    recorded = Job(4, "nccl")
    others, pair = recorded.group((0, 1, 3)), recorded.group((2, 3))
    for group in (recorded.everyone, others, pair):
        recorded.steps(4, group)
    recorded.call(others, ranks=[0, 3], done=False)
    recorded.call(pair, ranks=[2], done=False)
    found = Collection(4, recorded.now_ns + 60 * SECOND)
    for rank in (0, 1, 2, 3) if at_work else (0, 2, 3):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[LOADER_QUEUE if rank == 1 else ALL_REDUCE] * 3)
        found.dump(recorded, rank)
    found.kernel_log("[    9.000001] Linux version 6.8.0", xid(text))
    failed = [each for each in verdict_of(found.write(tmp_path)).suspects if each.cause is Cause.GPU_FAULT]
    assert {rank for each in failed for rank in each.ranks} == ranks


def test_an_error_of_the_rank_that_has_not_come_is(tmp_path: Path) -> None:
    (first, *_) = leaders(verdict_of(collected(xid(LOST, 1), absent=1, place=LOADER_QUEUE).write(tmp_path)))
    assert (first.ranks, first.cause) == ((1,), Cause.GPU_FAULT)


BEGAN = "cn-{host}:{pid}:9 [0] NCCL INFO comm 0x9b rank {rank} nranks 8 cudaDev 0 busId {bus}000 commId 0x5 - Init COMPLETE\n"
GAVE_UP = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:563] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40, "
    "OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=1800000) ran for 1800123 milliseconds before timing out.\n"
    "[rank{0}]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank {0}] Timeout at NCCL work: 40, last enqueued NCCL work: 40, last "
    "completed NCCL work: 39.\n"
)


@pytest.mark.parametrize(
    ("code", "gave_up", "ranks"),
    [(79, (0, 1, 2, 4), {5}), (94, (0, 1, 2, 4), set()), (79, (), set())],
    ids=["lost", "an error after which it may go on", "nobody waits"],
)
def test_a_lost_gpu_of_a_rank_that_never_gave_up_as_others_did(
    code: int, gave_up: tuple[int, ...], ranks: set[int], tmp_path: Path
) -> None:
    """Logs do not tell who was in the group; a GPU that NCCL began with, and that is gone, cannot take part in any."""
    began = "".join(BEGAN.format(host=rank // 4, pid=700 + rank, rank=rank, bus=f"{rank + 1:x}b") for rank in range(8))
    (tmp_path / "job.log").write_text(began + "step 4 loss 2.1\n" + "".join(GAVE_UP.format(rank) for rank in gave_up))
    line = f"[  84211.2] NVRM: Xid (PCI:0000:6b:00): {code}, pid='<unknown>', name=<unknown>, GPU has failed\n"
    (tmp_path / "dmesg-cn-1.txt").write_text(line.replace("84211.2", "84211.200014") * 2)
    assert named(verdict_of(tmp_path)) == ranks


@pytest.mark.parametrize(("day", "ranks"), [(" 2", set()), ("23", {5})], ids=["weeks before its steps", "that day"])
def test_dates_of_a_clock_without_a_zone_tell_an_old_loss(day: str, ranks: set[int], tmp_path: Path) -> None:
    began = "".join(BEGAN.format(host=rank // 4, pid=700 + rank, rank=rank, bus=f"{rank + 1:x}b") for rank in range(8))
    steps = "".join(f"2025-06-23 10:0{n}:01 step {90 + n} loss 2.2\n" for n in range(3))
    (tmp_path / "job.log").write_text(began + steps + "".join(GAVE_UP.format(rank) for rank in (0, 1, 2, 4)))
    line = f"[Mon Jun {day} 11:00:01 2025] NVRM: Xid (PCI:0000:6b:00): 79, pid=9, name=x, GPU has fallen off the bus.\n"
    (tmp_path / "dmesg-cn-1.txt").write_text(line * 2)
    assert named(verdict_of(tmp_path)) == ranks


def test_of_errors_that_came_together_one_is_to_blame(tmp_path: Path) -> None:
    lines = [xid("74, pid={pid}, name=python, NVLink", rank, address=f"0000:{rank}b:00") for rank in (1, 2)]
    (first,) = leaders(verdict_of(collected(*lines).write(tmp_path)))
    assert (first.ranks, first.members, first.confidence) == ((1, 2), "one_of", Confidence.SUSPECT)


def test_an_error_of_a_gpu_that_nobody_is_known_to_use_is_shown(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(
        "[Mon Nov 10 01:00:00 2025] NVRM: Xid (PCI:0000:3b:00): 79, pid=1200, GPU has fallen off\n"
    )
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert any("Xid 79" in label.reason and "which rank uses it is unknown" in label.reason for label in verdict.labels)
    assert not any("kernel log" in each for each in verdict.not_checked)


@pytest.mark.parametrize(("later_s", "ranks"), [(0, {2}), (3600, set())], ids=["its last", "one after the error"])
def test_logs_of_the_library_tell_when_a_call_was_entered(later_s: int, ranks: set[int], tmp_path: Path) -> None:
    """They have no time of enqueuing: a rank that made calls after the error went on."""
    with open_case([collected(xid(LOST)).write(tmp_path)]) as case:
        case.execute(f"UPDATE operations SET entered_ns = enqueued_ns + {later_s * SECOND}, enqueued_ns = NULL")
        assert set(supply_of(case).get(GpuErrors).by_rank) == ranks


@pytest.mark.parametrize(("number", "rank"), [(2, {2}), (7, set())], ids=["of a rank", "of no rank"])
def test_a_gpu_that_nvidia_smi_cannot_reach_is_named_too(number: int, rank: set[int], tmp_path: Path) -> None:
    """Its processes cannot be listed any more: ranks have the GPUs of their local numbers where these are as many."""
    found = whole(job(), {})
    found.service("gpu.smi", 0, "gpu/nvidia-smi.xml", smi(lost=number), found.at_ns)
    verdict = verdict_of(found.write(tmp_path))
    assert {each for suspect in verdict.suspects if suspect.cause is Cause.GPU_FAULT for each in suspect.ranks} == rank


def smi(*, lost: int, gpus: int = 4) -> bytes:
    """What nvidia-smi prints of some GPUs, one of which does not answer."""
    bodies = ["[GPU is lost]" if number == lost else "40 %" for number in range(gpus)]
    blocks = "".join(
        f'<gpu id="00000000:{number}B:00.0"><uuid>GPU-{number}abc</uuid><product_name>H100</product_name>'
        f"<utilization><gpu_util>{body}</gpu_util></utilization></gpu>"
        for number, body in enumerate(bodies)
    )
    return f'<?xml version="1.0" ?><nvidia_smi_log>{blocks}</nvidia_smi_log>'.encode()


STARTED = (
    "kx-{0}:{1}:{2} [{3}] NCCL INFO ncclCommInitRank comm 0x5{4} rank {4} nranks 4 cudaDev {3} nvmlDev {3} busId {5} "
    "commId 0x9 - Init COMPLETE\n"
)
LOST_PEER = "[rank0]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"


@pytest.mark.parametrize(("pid", "said"), [(71, "rank 3"), (70, "the rank that uses GPU 0000:43:00 of kx-1")])
def test_a_process_that_uses_another_gpu_by_its_own_words_is_not_pointed_at(pid: int, said: str, tmp_path: Path) -> None:
    """Numbers of processes within a container may be those of others on its host."""
    started = [
        STARTED.format(rank // 2, 68 + rank, 90 + rank, rank % 2, rank, ("1b000", "43000")[rank % 2]) for rank in range(4)
    ]
    (tmp_path / "train.log").write_text("".join(started) + LOST_PEER)
    kernel = f"Jun 02 10:20:10 kx-1 kernel: NVRM: Xid (PCI:0000:43:00): 48, pid={pid}, name=python3, DBE (double bit error)\n"
    (tmp_path / "journal-kx-1.txt").write_text(kernel * 2)
    verdict = verdict_of(tmp_path)
    assert named(verdict) <= {3}
    assert any(said in lead for lead in verdict.leads) or named(verdict) == {3}
