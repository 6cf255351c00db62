"""The test bed drives a profiler plugin of every version in NCCL's order; a plugin that writes all down is the witness."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.native.testbed import SOURCES, Shape, built, start

pytestmark = pytest.mark.slow

PLUGIN = Path(__file__).with_name("recording_plugin.c")
RELEASES = {1: "2.23.4", 2: "2.24.3", 3: "2.26.2", 4: "2.27.3", 5: "2.28.3", 6: "2.30.7", 7: "2.31.2"}
COLL, P2P, PROXY_OP, PROXY_STEP, KERNEL, COLL_API, P2P_API = 2, 4, 8, 16, 64, 512, 1024
SEND_GPU_WAIT, SEND_WAIT, RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT, IN_PROGRESS, SEND_PEER_WAIT = 8, 9, 10, 11, 12, 19, 20
SENDS = ((SEND_GPU_WAIT, SEND_WAIT), (SEND_GPU_WAIT, SEND_PEER_WAIT, SEND_WAIT))
RECVS = (RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT)
PAIR = Shape(pp=2, per_host=1, steps=2)


@dataclass(slots=True)
class Event:
    """What a plugin was known of one event; states without their repetitions, and the lines of its start and stop."""

    kind: int
    fields: dict[str, str]
    started: int
    states: list[int] = field(default_factory=list)
    repeated: int = 0
    sizes: list[int] = field(default_factory=list)
    stopped: int | None = None


@dataclass(slots=True)
class Recording:
    """The callbacks of one process."""

    inits: list[dict[str, str]] = field(default_factory=list)
    finals: int = 0
    events: dict[str, Event] = field(default_factory=dict)

    def of(self, kind: int) -> list[Event]:
        return [event for event in self.events.values() if event.kind == kind]


def read(path: Path) -> Recording:
    recording = Recording()
    for number, line in enumerate(path.read_text().splitlines()):
        what, handle, *pairs = line.split(" ")
        values = dict(pair.split("=", 1) for pair in pairs)
        if what == "init":
            recording.inits.append(values)
        elif what == "finalize":
            recording.finals += 1
        elif what == "start":
            assert handle not in recording.events
            recording.events[handle] = Event(int(values["type"]), values, number)
        elif what == "stop":
            assert recording.events[handle].stopped is None, line
            recording.events[handle].stopped = number
        else:
            note(recording.events[handle], int(values["value"]), int(values["size"]))
    return recording


def note(event: Event, state: int, size: int) -> None:
    assert event.stopped is None
    if event.states and event.states[-1] == state:
        event.repeated += 1
    else:
        event.states.append(state)
        event.sizes.append(size)


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One plugin per version of the interface."""
    folder = tmp_path_factory.mktemp("plugins")
    for version in RELEASES:
        output = ["-o", str(folder / f"libnccl-profiler-v{version}.so"), "-pthread"]
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-DVERSION={version}", f"-I{SOURCES / 'nccl'}"]
        subprocess.run(["cc", *flags, str(PLUGIN), *output], check=True)
    return folder


def environment(plugins: Path, folder: Path, version: int, release: str, **more: str) -> dict[str, str]:
    plugin = str(plugins / f"libnccl-profiler-v{version}.so")
    return {"NCCL_PROFILER_PLUGIN": plugin, "RECORDING_DIR": str(folder), "TESTBED_NCCL_VERSION": release, **more}


def steps_are_true(recording: Recording, version: int, native: bool) -> None:
    """Every step ran through the true states, inside its operation, inside its task."""
    operations, tasks = recording.of(PROXY_OP), {COLL, P2P}
    assert operations
    for operation in operations:
        assert recording.events[operation.fields["parent"]].kind in tasks
        assert (IN_PROGRESS in operation.states) == (version >= 4)
        assert any(state < SEND_GPU_WAIT for state in operation.states) == (version <= 3 and native)
    count: Counter[str] = Counter()
    for step in recording.of(PROXY_STEP):
        operation = recording.events[step.fields["parent"]]
        sends = operation.fields["send"] == "1"
        assert tuple(step.states) == (SENDS[version >= 4] if sends else RECVS)
        assert operation.started < step.started and step.stopped is not None and operation.stopped is not None
        assert step.stopped < operation.stopped
        assert int(step.fields["step"]) == count[step.fields["parent"]]
        count[step.fields["parent"]] += 1
    assert all(count[handle] == int(e.fields["steps"]) for handle, e in recording.events.items() if e.kind == PROXY_OP)


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("newer", [False, True])
def test_each_version_is_driven_in_the_true_order(version: int, newer: bool, plugins: Path, tmp_path: Path) -> None:
    release = RELEASES[7] if newer else RELEASES[version]
    env = environment(plugins, tmp_path, version, release)
    with start(built(), tmp_path / "job", PAIR, env=env) as job:
        assert job.finish() == [0, 0]
        for process in job.processes:
            recording = read(tmp_path / f"{process.pid}.rec")
            assert len(recording.inits) == recording.finals == 4
            assert all(event.stopped is not None for event in recording.events.values())
            steps_are_true(recording, version, native=not newer or version == 7)
            names = {event.fields["func"] for event in recording.of(COLL)}
            assert names == ({"4"} if version == 1 else {"AllReduce"})
            assert bool(recording.of(COLL_API)) == bool(recording.of(P2P_API)) == (version >= 5)
            assert bool(recording.of(KERNEL)) == (version >= 3)
            stated = [init for init in recording.inits if init["ranks"] == "2"]
            assert bool(stated) == (version >= 4) and all(init["nodes"] == "2" for init in stated)


def test_the_counters_of_a_plugin_are_the_truth(plugins: Path, tmp_path: Path) -> None:
    shape = Shape(pp=2, dp=2, per_host=1, steps=2, more={"elements": 30000})
    with start(built(), tmp_path / "job", shape, env=environment(plugins, tmp_path, 6, RELEASES[6])) as job:
        assert job.finish() == [0] * 4
        for rank, process in enumerate(job.processes):
            recording = read(tmp_path / f"{process.pid}.rec")
            keys = ("channel", "peer", "send", "steps")
            stated = Counter(tuple(int(event.fields[key]) for key in keys) for event in recording.of(PROXY_OP))
            true = Counter((step.channel, step.peer, step.is_send, step.total) for step in job.steps(rank))
            assert stated == true
            sent = [step for step in recording.of(PROXY_STEP) if step.states[0] == SEND_GPU_WAIT]
            assert len(sent) == sum(step.transmitted for step in job.steps(rank))
            carried = [pair for pair in job.pairs(rank) if pair.other != rank and not pair.recvs]
            assert sum(step.sizes[-1] for step in sent) == sum(pair.bytes for pair in carried), "known once it is handed over"


def test_sequence_numbers_rise_per_communicator_and_collective(plugins: Path, tmp_path: Path) -> None:
    shape = Shape(dp=2, per_host=1, steps=4, more={"shards": 1})
    with start(built(), tmp_path / "job", shape, env=environment(plugins, tmp_path, 5, RELEASES[5])) as job:
        assert job.finish() == [0, 0]
        recording = read(tmp_path / f"{job.processes[0].pid}.rec")
        seen: dict[tuple[str, str], list[int]] = {}
        for event in recording.of(COLL):
            seen.setdefault((event.fields["in"], event.fields["func"]), []).append(int(event.fields["seq"]))
        assert {func for _, func in seen} == {"AllReduce", "ReduceScatter", "AllGather"}
        assert all(numbers == [0, 1, 2, 3] for numbers in seen.values())


def test_inside_a_host_no_proxy_is_seen(plugins: Path, tmp_path: Path) -> None:
    env = environment(plugins, tmp_path, 6, RELEASES[6])
    with start(built(), tmp_path / "job", Shape(pp=2, dp=2, per_host=4, steps=1), env=env) as job:
        assert job.finish() == [0] * 4
        recording = read(tmp_path / f"{job.processes[0].pid}.rec")
        assert recording.of(COLL) and recording.of(P2P) and recording.of(KERNEL)
        assert not recording.of(PROXY_OP) and not recording.of(PROXY_STEP)


def test_a_missing_credit_is_asked_for_again_and_again(plugins: Path, tmp_path: Path) -> None:
    env = environment(plugins, tmp_path, 6, RELEASES[6], RECORDING_MASK="30")
    with start(built(), tmp_path / "job", PAIR, "credit_withheld:rank=1,step=1", env=env) as job:
        job.until_hung(lambda: bool(job.stuck(0)))
        recording = read(tmp_path / f"{job.processes[0].pid}.rec")
        waiting = [step for step in recording.of(PROXY_STEP) if step.states[-1] == SEND_PEER_WAIT]
        assert waiting and max(step.repeated for step in waiting) > 20
        tasks = [recording.events[recording.events[step.fields["parent"]].fields["parent"]] for step in waiting]
        assert all(task.stopped is not None for task in tasks), "a task stops when it is queued, not when it is done"


def test_a_plugin_asks_for_little_and_gets_little(plugins: Path, tmp_path: Path) -> None:
    env = environment(plugins, tmp_path, 6, RELEASES[6], RECORDING_MASK="2")
    with start(built(), tmp_path / "job", PAIR, env=env) as job:
        assert job.finish() == [0, 0]
        kinds = {event.kind for event in read(tmp_path / f"{job.processes[0].pid}.rec").events.values()}
        assert COLL in kinds and not kinds & {P2P, PROXY_OP, PROXY_STEP, KERNEL}


@pytest.mark.parametrize(("name", "bound"), [("v6", True), ("none", False), ("nowhere", False)])
def test_a_plugin_is_found_by_its_short_name(name: str, bound: bool, plugins: Path, tmp_path: Path) -> None:
    libraries = f"{built()}:{plugins}"
    env = {"NCCL_PROFILER_PLUGIN": name, "RECORDING_DIR": str(tmp_path), "LD_LIBRARY_PATH": libraries}
    with start(built(), tmp_path / "job", Shape(pp=2, steps=1), env=env) as job:
        assert job.finish() == [0, 0]
        assert bool(list(tmp_path.glob("*.rec"))) == bound


def test_an_old_library_knows_no_newer_interface(plugins: Path, tmp_path: Path) -> None:
    env = environment(plugins, tmp_path, 5, RELEASES[4])
    with start(built(), tmp_path / "job", Shape(pp=2, steps=1), env=env) as job:
        assert job.finish() == [0, 0]
        assert not list(tmp_path.glob("*.rec"))
