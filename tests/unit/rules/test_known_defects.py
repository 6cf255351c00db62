"""Public defects: named beside the suspects where version and sign are there, and not by anything that only looks like one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.model import Evidence, GroupRow, KnownDefect, Verdict
from forensics.report import json as report_json
from forensics.report import markdown, text
from forensics.rules.known_defects import Defect, Facts, Sign, catalogue, known_defects
from tests.recordings.collection import py_spy, whole, write
from tests.recordings.job import Job, as_json
from tests.recordings.places import ALL_REDUCE, Place
from tests.recordings.rank_logs import one_behind
from tests.recordings.verdicts import named, verdict_of

FRONT = "gpu-017:4100:4188 [0] "
LINES = {
    "nccl-stray-connection": f"{FRONT}misc/socket.cc:484 NCCL WARN socketFinalizeAccept: wrong magic 74656d2f != 7970663b",
    "nccl-nvls-no-fallback": f"{FRONT}transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",
    "nccl-fp8-no-algorithm": f"{FRONT}enqueue.cc:1901 NCCL WARN Error : no algorithm/protocol available for function AllReduce "
    "with datatype ncclFloat8e4m3.",
    "nccl-geforce-shared-memory": f"{FRONT}NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856",
    "nccl-left-cuda-error": "[rank3]: RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "nccl-early-copy": f"{FRONT}proxy.cc:1139 NCCL WARN Socket recv failed while polling for opId=0x7f1\n"
    f"{FRONT}transport/nvls.cc:165 NCCL WARN Cuda failure 'invalid argument'",
    "nccl-interrupted-accept": f"{FRONT}misc/socket.cc:452 NCCL WARN socketTryAccept: Accept failed: Interrupted system call",
    "torch-nonblocking-nccl": f"{FRONT}NCCL INFO Comm config Blocking set to 0",
    "driver-570-accounting": "[  812.104410] BUG: kernel NULL pointer dereference, address: 0000000000000018\n"
    "[  812.104421] RIP: 0010:_nv042612rm+0x2c/0x90 [nvidia]",
}
DEFECTS = {defect.id: defect for defect in catalogue()}
SPINNING: Place = (("ncclLocalOpAppend", "proxy.cc", 493), ("SaveProxy", "proxy.cc", 541), *ALL_REDUCE)


def stuck(defect: Defect, size: int = 128) -> GroupRow:
    members = tuple(range(size))
    return GroupRow("0:default_pg", members, "read", 7, defect.call, None, members, (), ())


def showing(defect: Defect, version: str | None, machine: str | None = None) -> Facts:
    """Facts in which all signs of a defect are seen."""
    lines = tuple(Sign(line, (3,), f"job.log#line={n}") for n, line in enumerate(LINES.get(defect.id, "").splitlines(), 1))
    stated = Evidence("aarch64" if machine is None else machine, "nodes/gpu-017/node.json")
    return Facts(
        versions={defect.product: (Evidence(version, "job.log"),)} if version else {},
        machines=(stated,),
        frames=((frozenset(defect.frames), Sign("in it", (3,), "ranks/3/stacks/0.json")),) if defect.frames else (),
        lines=lines,
        calls=(stuck(defect),) if defect.call else (),
        environment={name: frozenset((value,)) for name, value in defect.environment.items()},
    )


def found(defect: Defect, facts: Facts) -> KnownDefect | None:
    return next(iter(known_defects(facts, [defect])), None)


def later(version: str) -> str:
    *front, last = version.split(".")
    return ".".join([*front, str(int(last) + 1)])


def earlier(version: str) -> str:
    return ".".join([str(int(version.split(".")[0]) - 1), "99", "9"])


def test_the_catalogue_is_whole() -> None:
    assert len(DEFECTS) == len(catalogue()) >= 12
    for defect in catalogue():
        assert defect.frames or defect.lines or defect.call
        assert defect.links and all(link.startswith("https://") for link in defect.links)
        assert set(defect.lines) == set() or defect.id in LINES


@pytest.mark.parametrize("defect", catalogue(), ids=lambda defect: defect.id)
def test_version_in_range_and_sign_name_the_defect(defect: Defect) -> None:
    seen = found(defect, showing(defect, f"{defect.since}+cuda12.8"))
    assert seen is not None and seen.certain and seen.links == defect.links
    assert all(item.statement for item in seen.evidence)


@pytest.mark.parametrize("defect", catalogue(), ids=lambda defect: defect.id)
def test_another_version_is_not_named(defect: Defect) -> None:
    for version in (defect.fixed, later(defect.fixed), earlier(defect.since)):
        assert found(defect, showing(defect, version)) is None


@pytest.mark.parametrize("defect", catalogue(), ids=lambda defect: defect.id)
def test_without_a_stated_version_it_is_possible_only(defect: Defect) -> None:
    for facts in (
        showing(defect, None),
        showing(defect, f"{defect.since}a0+git1a2b3c4"),
        replace(showing(defect, None), versions={defect.product: (Evidence(defect.since), Evidence(defect.fixed))}),
        replace(showing(defect, None), versions={"other": (Evidence(defect.since),)}),
    ):
        seen = found(defect, facts)
        assert seen is not None and not seen.certain


@pytest.mark.parametrize("defect", catalogue(), ids=lambda defect: defect.id)
def test_the_version_alone_says_nothing(defect: Defect) -> None:
    facts = showing(defect, defect.since)
    assert found(defect, replace(facts, frames=(), lines=(), calls=())) is None
    assert found(defect, replace(facts, frames=facts.frames[1:], lines=facts.lines[1:], calls=facts.calls[1:])) is None
    elsewhere = tuple(Sign(sign.text.replace("e", "f").replace("nvidia", "nvme"), (), None) for sign in facts.lines)
    other = ((frozenset({"ncclProxyProgress"}), Sign("elsewhere", (), None)),)
    assert found(defect, replace(facts, lines=elsewhere, frames=other, calls=())) is None


@pytest.mark.parametrize("defect", [d for d in catalogue() if d.machine], ids=lambda defect: defect.id)
def test_another_machine_is_not_named(defect: Defect) -> None:
    assert found(defect, showing(defect, defect.since, "x86_64")) is None
    unknown = found(defect, replace(showing(defect, defect.since), machines=()))
    assert unknown is not None and not unknown.certain


@pytest.mark.parametrize("defect", [d for d in catalogue() if d.call], ids=lambda defect: defect.id)
def test_a_group_that_misses_somebody_is_not_stuck_by_a_defect(defect: Defect) -> None:
    facts, row = showing(defect, defect.since), stuck(defect)
    for other in (
        replace(row, joined=row.joined[1:], missing=(0,)),
        replace(row, finished=(5,)),
        replace(row, operation="all_reduce"),
        replace(row, operation=None),
        *([stuck(defect, defect.members - 1)] if defect.members else []),
    ):
        assert found(defect, replace(facts, calls=(other,))) is None


def test_variables_that_exclude_a_defect_or_are_not_set() -> None:
    for defect in catalogue():
        facts = showing(defect, defect.since)
        if defect.unless:
            switched_off = {name: frozenset((value,)) for name, value in defect.unless.items()}
            assert found(defect, replace(facts, environment=switched_off)) is None
        if defect.environment:
            assert found(defect, replace(facts, environment={})) is None


def test_the_library_of_another_vendor_has_other_versions() -> None:
    defect = DEFECTS["nccl-stray-connection"]
    facts = showing(defect, "2.22.3")
    assert found(defect, replace(facts, versions={**facts.versions, "torch": (Evidence("2.6.0+rocm6.2"),)})) is None


def ids(verdict: Verdict, certain: bool = True) -> set[str]:
    return {each.id for each in verdict.known_defects if each.certain == certain}


def logged(tmp_path: Path, *lines: str) -> Verdict:
    """A job whose rank 3 stays behind, with these lines in its log."""
    path = one_behind().write_together(tmp_path / "job.log")
    path.write_text("".join(f"{line}\n" for line in lines) + path.read_text())
    return verdict_of(path)


VERSION = f"{FRONT}NCCL INFO NCCL version {{}}+cuda12.8"


@pytest.mark.parametrize(
    ("nccl", "torch"), [("2.18.3", "2.1.0"), ("2.25.1", "2.7.0"), ("2.28.3", "2.7.1"), ("2.30.7", "2.12.0")]
)
def test_from_a_pasted_log_with_the_signs_of_all(tmp_path: Path, nccl: str, torch: str) -> None:
    """Versions decide which of them are named, and no defect is possible only."""
    signs = {name: line for name, line in LINES.items() if not name.startswith("driver")}
    verdict = logged(tmp_path, VERSION.format(nccl), f"PyTorch version: {torch}+cu126", *signs.values())
    stated = {"nccl": nccl, "torch": torch}
    expected = {name for name in signs if found(DEFECTS[name], showing(DEFECTS[name], stated[DEFECTS[name].product]))}
    assert (ids(verdict), ids(verdict, certain=False)) == (expected, set())
    assert len(expected) == {"2.18.3": 2, "2.25.1": 6, "2.28.3": 3, "2.30.7": 0}[nccl]


def test_the_suspect_stays_and_every_report_names_the_defect_beside_it(tmp_path: Path) -> None:
    bare = logged(tmp_path / "bare", VERSION.format("2.26.2"))
    verdict = logged(tmp_path / "seen", VERSION.format("2.26.2"), LINES["nccl-stray-connection"])
    assert verdict.suspects[0].ranks == bare.suspects[0].ranks == (3,)
    assert named(verdict) == named(bare)
    link = "https://github.com/NVIDIA/nccl/issues/1808"
    for shown in (text.render(verdict), text.render(verdict, verbose=True)):
        assert "NCCL 2.26.2 has this defect, and its sign was seen" in " ".join(shown.split())
        assert link in shown
    assert link in markdown.render(verdict)
    (row,) = json.loads(report_json.render(verdict))["known_defects"]
    assert (row["id"], row["certain"], row["fixed"]) == ("nccl-stray-connection", True, "2.30.7")
    possible = logged(tmp_path / "none", LINES["nccl-stray-connection"])
    assert "possible, if NCCL is 2.19.3 or newer and older than 2.30.7" in " ".join(text.render(possible).split())


def collected(samples: tuple[Place, ...], version: str, machine: str) -> dict[str, bytes]:
    job = Job(4)
    job.steps(3)
    job.hang((2,))
    collection = whole(job, {})
    for number, place in enumerate(samples):
        collection.members[f"ranks/2/stacks/{number}.json"] = py_spy(place, 4120)
    versions = {
        "schema": "forensics.versions/1",
        "node": "gpu-017",
        "ranks": {"2": {"packages": {"nvidia_nccl_cu13": version}}},
    }
    node = {"node": "gpu-017", "hostname": "gpu-017", "boot_id": "1", "machine": machine, "clocks": [], "processes_seen": 9}
    collection.members["nodes/gpu-017/versions.json"] = json.dumps(versions).encode()
    collection.members["nodes/gpu-017/node.json"] = json.dumps(node).encode()
    return collection.finished()


@pytest.mark.parametrize(
    ("samples", "version", "machine", "expected"),
    [
        ((SPINNING,) * 3, "2.28.9", "aarch64", {"nccl-arm-slot-leak"}),
        ((SPINNING,) * 3, "2.28.9", "x86_64", set()),
        ((SPINNING,) * 3, "2.29.3", "aarch64", set()),
        ((SPINNING,) * 3, "2.27.3", "x86_64", {"nccl-slot-order"}),
        ((SPINNING, ALL_REDUCE, SPINNING), "2.28.9", "aarch64", set()),
    ],
)
def test_from_stacks_and_versions_of_a_bundle(
    tmp_path: Path, samples: tuple[Place, ...], version: str, machine: str, expected: set[str]
) -> None:
    verdict = verdict_of(write(tmp_path, collected(samples, version, machine)))
    assert ids(verdict) == expected
    assert ids(verdict, certain=False) == set()
    assert all(each.ranks == (2,) for each in verdict.known_defects)


@pytest.mark.parametrize(
    ("driver", "expected"), [("570.124.06", {"driver-570-accounting"}), ("570.133.20", set()), ("560.35.03", set())]
)
def test_from_a_kernel_log(tmp_path: Path, driver: str, expected: set[str]) -> None:
    loaded = f"[    9.120418] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build\n"
    (tmp_path / "dmesg.txt").write_text(loaded + LINES["driver-570-accounting"] + "\n")
    one_behind().write_together(tmp_path / "job.log")
    assert ids(verdict_of(tmp_path)) == expected


def test_the_driver_by_nvidia_smi(tmp_path: Path) -> None:
    (tmp_path / "smi.xml").write_text(
        '<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>570.86.15</driver_version>\n'
        '<gpu id="00000000:8B:00.0"><product_name>H100</product_name></gpu>\n</nvidia_smi_log>\n'
    )
    (tmp_path / "dmesg.txt").write_text(LINES["driver-570-accounting"] + "\n")
    one_behind().write_together(tmp_path / "job.log")
    assert ids(verdict_of(tmp_path)) == {"driver-570-accounting"}


@pytest.mark.parametrize(("version", "expected"), [("2.19.3", {"nccl-cumem-alltoall"}), ("2.20.3", set()), ("2.18.1", set())])
def test_from_dumps_in_which_all_entered_an_all_to_all(tmp_path: Path, version: str, expected: set[str]) -> None:
    job = Job(4, backend="nccl")
    job.steps(3)
    job.hang((), kind="all_to_all")
    for rank in range(4):
        dump = as_json(job.dump(rank) | {"comm_lib_version": version})
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_bytes(dump)
    (tmp_path / "rank0.log").write_text(
        "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLTOALL)\n"
    )
    assert ids(verdict_of(tmp_path)) == expected


def test_an_all_to_all_that_one_rank_did_not_call_has_another_cause(tmp_path: Path) -> None:
    job = Job(4, backend="nccl")
    job.steps(3)
    job.hang({2}, kind="all_to_all")
    job.hang({0, 1, 3}, kind="all_reduce")
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}.json").write_bytes(as_json(job.dump(rank) | {"comm_lib_version": "2.19.3"}))
    verdict = verdict_of(tmp_path)
    assert named(verdict) and not verdict.known_defects
