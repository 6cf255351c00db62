"""Bundles of simulated jobs: read by our own ingesters and by torch, the same for the same seed, silent about the fault."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from forensics.case.build import open_case
from forensics.errors import ForensicsError
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.code_bases import BASES
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.places import draw_places
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.sources import SOURCES, USUAL, known
from forensics.fixtures.simulator.truth import truth
from tests.unit.simulator.lower_runs import case as lower
from tests.unit.simulator.small_jobs import DENSE, crossing_leaves


def made(fault: str, seed: int = 3) -> Simulation:
    wanted = parse(fault)
    job = crossing_leaves(DENSE) if wanted.kind.place == "leaf" else DENSE
    return simulate(job, [wanted], seed, iterations=4, onset=2)


def write(made: Simulation, path: Path, lost: losses.Losses | None = None, **options: object) -> Path:
    bundle.write(made, bundle.options_of(made, **options), lost or losses.Losses(), path, replace=True)
    return path


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def hung() -> Simulation:
    return made("host-hang@rank5/backward")


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_names(hung: Simulation, tmp_path: Path) -> None:
    first = write(hung, tmp_path / "a.tar").read_bytes()
    assert write(made("host-hang@rank5/backward"), tmp_path / "b.tar").read_bytes() == first
    other = made("host-hang@rank5/backward", 4)
    assert not {host.name for host in other.places.hosts} & {host.name for host in hung.places.hosts}
    assert set(other.places.pids) != set(hung.places.pids)


@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {"expert-imbalance"}))
def test_nothing_tells_the_fault(name: str, tmp_path: Path) -> None:
    assert_silent(contents(write(made(name), tmp_path / "bundle.tar")), name)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("nic-down", "process-oom") else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(FAULTS.keys() - {"expert-imbalance"})
    ],
)
def test_no_source_beside_the_usual_ones_tells_the_fault(name: str, tmp_path: Path) -> None:
    case, options = lower(name)
    others = [source for source in known() if not SOURCES[source].usual]
    bundle.write(
        case, options, losses.drawn(case.job.parallel.world, np.random.default_rng(1), only=others), tmp_path / "b.tar"
    )
    found = contents(tmp_path / "b.tar")
    assert {path.split("/")[2] for path in found if path.count("/") > 1} >= {"shim", "nic"}
    assert_silent(found, name)


def assert_silent(found: dict[str, bytes], name: str) -> None:
    """No member, unpacked where it is packed, and no name of one has a word of the truth."""
    words = (
        rb"simulat|inject|truth|(?<!de)(?<!seg)fault[s_ -]|culprit|forensics\.fixtures",
        name.encode(),
        name.replace("-", "_").encode(),
    )
    secret = re.compile(b"|".join(words if name != "none" else words[:1]))
    stated = {path for path, content in found.items() if secret.search(unpacked(path, content))}
    assert not stated
    assert not [path for path in found if secret.search(path.encode())]


def unpacked(path: str, content: bytes) -> bytes:
    if path.endswith(".gz"):
        return gzip.decompress(content)
    return zstandard.ZstdDecompressor().decompress(content) if path.endswith(".zst") else content


@pytest.mark.slow
def test_sources_are_where_a_collection_has_them_with_its_lines(tmp_path: Path) -> None:
    case, options = lower("nic-down@rank2")
    lost = losses.drawn(case.job.parallel.world, np.random.default_rng(1), beside=("shim,nic",), missing="4")
    bundle.write(case, options, lost, tmp_path / "b.tar")
    found = contents(tmp_path / "b.tar")
    lines = [
        json.loads(line)
        for path, content in found.items()
        if path.endswith("collectors.jsonl")
        for line in content.splitlines()
    ]
    by_path = {line["path"]: line for line in lines}
    for rank in set(range(case.job.parallel.world)) - {4}:
        (log,) = [path for path in found if path.startswith(f"ranks/{rank}/shim/")]
        assert log.endswith(".frx.zst") and by_path[log]["id"] == "shim.log" and by_path[log]["rank"] == rank
        assert by_path[log]["captured_ns"] == by_path[log]["begin_ns"]
    assert not [path for path in found if path.startswith("ranks/4/")]
    assert {line["id"] for line in lines if line["rank"] is None} >= {"ib.counters", "gpu.smi", "clock", "kernel.log"}
    connection = open_case([tmp_path / "b.tar"])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
    kinds = dict(connection.execute("SELECT kind, count(*) FROM sources WHERE status = 'ok' GROUP BY kind").fetchall())
    assert kinds["shim_log"] == case.job.parallel.world - 1 and kinds["nic_epochs"] == case.job.parallel.world
    assert connection.execute("SELECT count(*) FROM chunk_states").fetchall()[0][0] > 0


def test_only_and_with_choose_sources() -> None:
    chance = np.random.default_rng(1)
    assert losses.drawn(4, chance).sources == USUAL
    assert losses.drawn(4, chance, only=("recorder,shim",)).sources == {"recorder", "shim"}
    assert losses.drawn(4, chance, beside=("nic",)).sources == USUAL | {"nic"}
    with pytest.raises(ForensicsError, match="recorder"):
        losses.drawn(4, chance, only=("tea leaves",))


@pytest.mark.parametrize("style", sorted(BASES))
def test_our_own_reader_has_no_complaint(hung: Simulation, style: str, tmp_path: Path) -> None:
    connection = open_case([write(hung, tmp_path / "bundle.tar", style=style)])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
    rows = connection.execute("SELECT kind, count(*) FROM sources WHERE status = 'ok' GROUP BY kind").fetchall()
    assert dict(rows)["flight_recorder"] == DENSE.parallel.world
    counted = connection.execute("SELECT count(DISTINCT rank) FROM stacks").fetchall()
    assert counted == [(DENSE.parallel.world,)]
    members = connection.execute("SELECT max(n) FROM (SELECT count(*) n FROM members GROUP BY communicator)").fetchall()
    assert members == [(DENSE.parallel.world,)]


def test_dumps_have_the_opcodes_of_torch(hung: Simulation, tmp_path: Path) -> None:
    import pickletools

    found = contents(write(hung, tmp_path / "bundle.tar"))
    dump = next(content for path, content in found.items() if "/fr/" in path)
    names = {opcode.name for opcode, _, _ in pickletools.genops(dump)}
    assert names <= {
        "PROTO", "EMPTY_DICT", "MARK", "BINUNICODE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_LIST", "APPENDS",
        "SETITEMS", "BININT1", "BININT2", "BININT", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE", "TUPLE2", "STOP",
    }  # fmt: skip
    entries = pickle.load(io.BytesIO(dump))["entries"]  # noqa: S301
    assert [entry["record_id"] for entry in entries] == list(
        range(entries[0]["record_id"], entries[0]["record_id"] + len(entries))
    )


def test_an_entry_is_pending_exactly_when_its_operation_has_not_ended(hung: Simulation, tmp_path: Path) -> None:
    found = contents(write(hung, tmp_path / "bundle.tar", style="plain"))
    for rank in (0, 5, 9):
        (dump,) = [content for path, content in found.items() if path.startswith(f"ranks/{rank}/fr/")]
        entries = pickle.loads(dump)["entries"]  # noqa: S301
        ended = [
            column.ended[n] < hung.capture_ns
            for _, column in hung.run.of_rank(rank)
            for n, op in enumerate(column.ops)
            if op.kind in ("collective", "send", "recv") and np.isfinite(column.issued[n])
        ]
        assert [entry["state"] == "completed" for entry in entries] == ended[-len(entries) :]


def test_durations_are_those_between_the_events_of_what_the_watchdog_retired(hung: Simulation, tmp_path: Path) -> None:
    found = contents(write(hung, tmp_path / "bundle.tar", style="plain", timing=True))
    (dump,) = [content for path, content in found.items() if path.startswith("ranks/5/fr/")]
    entries = pickle.loads(dump)["entries"]  # noqa: S301
    took = [
        (column.ended[n] - column.began[n]) / 1e6
        for _, column in hung.run.of_rank(5)
        for n, op in enumerate(column.ops)
        if op.kind in ("collective", "send", "recv") and np.isfinite(column.issued[n])
    ][-len(entries) :]
    assert all(("duration_ms" in entry) == entry["retired"] for entry in entries)
    stated = [(entry["duration_ms"], real) for entry, real in zip(entries, took, strict=True) if entry["retired"]]
    assert len(stated) > 100 and all(said == pytest.approx(real, rel=1e-5) for said, real in stated)


def test_losses_are_what_was_asked_for(hung: Simulation, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lost = losses.drawn(DENSE.parallel.world, random, missing="0-1", cut=0.5, only=("recorder",))
    found = contents(write(hung, tmp_path / "bundle.tar", lost))
    assert {path.split("/")[2] for path in found if path.startswith("ranks/")} == {"fr"}
    assert not [path for path in found if path.startswith(("ranks/0/", "ranks/1/"))]
    whole = contents(write(hung, tmp_path / "whole.tar"))
    cut = [path for path in found if "/fr/" in path and len(found[path]) < len(whole[path])]
    assert 2 <= len(cut) < DENSE.parallel.world
    ring = contents(write(hung, tmp_path / "ring.tar", ring=50))
    assert all(len(pickle.loads(ring[path])["entries"]) == 50 for path in ring if "/fr/" in path)  # noqa: S301


def test_a_killed_process_leaves_no_dump_and_no_stack(tmp_path: Path) -> None:
    case = made("process-oom@rank6")
    found = contents(write(case, tmp_path / "bundle.tar"))
    assert not [path for path in found if re.match(r"ranks/6/(?:fr|stacks)/", path)]
    assert json.loads(found["ranks/6/rank.json"])["state"] in ("zombie", "absent")
    host = case.places.host(6).name
    assert b"Killed process" in found[f"nodes/{host}/kernel/dmesg.txt"]


def test_the_watchdog_dates_the_dumps_and_writes_lines(hung: Simulation, tmp_path: Path) -> None:
    late = simulate(DENSE, [parse("host-hang@rank5/backward")], 3, iterations=4, after_s=660.0)
    connection = open_case([write(late, tmp_path / "bundle.tar", by_watchdog=True)])
    kinds = dict(connection.execute("SELECT kind, count(*) FROM log_events GROUP BY kind").fetchall())
    assert kinds["watchdog_timeout"] >= DENSE.parallel.world - 4
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []


def test_truth_names_the_rank_the_place_and_the_time(hung: Simulation) -> None:
    found = truth(hung, losses.Losses())
    (fault,) = found["faults"]
    assert found["outcome"] == "hang" and fault["ranks"] == [5] and fault["stage"]["name"] == "backward"
    assert fault["hosts"] == [hung.places.host(5).name]
    assert hung.places.start_ns < fault["onset_ns"] < found["capture_ns"]
    assert json.loads(json.dumps(found)) == found


def test_two_faults_at_once() -> None:
    case = simulate(DENSE, [parse("gpu-throttled@rank1:200W"), parse("host-hang@rank9")], 5, iterations=4)
    assert [fault["kind"] for fault in truth(case, losses.Losses())["faults"]] == ["gpu-throttled", "host-hang"]
    assert case.hung


def test_places_follow_the_board() -> None:
    places = draw_places(DENSE, np.random.default_rng(2))
    assert len(places.hosts) == 4 and len(places.pids) == 16
    assert len({gpu.pci for gpu in places.gpus[0]}) == 4 and len({gpu.uuid for row in places.gpus for gpu in row}) == 16
    assert places.wall(0, 2e9) - places.wall(0, 1e9) == pytest.approx(1e9, abs=30_000)


def dumps(path: Path) -> list[list[dict[str, Any]]]:
    """Entries of each dump of a bundle."""
    found = [pickle.loads(content) for name, content in contents(path).items() if "/fr/" in name]  # noqa: S301
    return [dump["entries"] for dump in found]


def test_a_recorder_finds_begin_and_end_at_one_moment(hung: Simulation, tmp_path: Path) -> None:
    """What ended is found in a round of the watchdog, the rest as the dump is written."""
    for entries in dumps(write(hung, tmp_path / "a.tar", timing=True)):
        ended = [entry for entry in entries if entry["retired"]]
        found = [(entry["time_discovered_started_ns"], entry["time_discovered_completed_ns"]) for entry in ended]
        assert ended and all(0 <= end - begin < 1_000 for begin, end in found)
        assert len({entry["time_discovered_started_ns"] for entry in entries if entry["state"] == "started"}) <= 1


def test_a_tracer_knows_when_operations_began(hung: Simulation, tmp_path: Path) -> None:
    for entries in dumps(write(hung, tmp_path / "a.tar", timing=True, exact=True)):
        for entry in (each for each in entries if each["retired"]):
            took = entry["time_discovered_completed_ns"] - entry["time_discovered_started_ns"]
            assert took == pytest.approx(entry["duration_ms"] * 1e6, abs=5_000)
