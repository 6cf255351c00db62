"""Bundles of simulated jobs: read by our own ingesters and by torch, the same for the same seed, silent about the fault."""

from __future__ import annotations

import io
import json
import pickle
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.places import draw_places
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.truth import truth
from tests.unit.simulator.small_jobs import DENSE


def made(fault: str, seed: int = 3) -> Simulation:
    return simulate(DENSE, [parse(fault)], seed, iterations=4)


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
    case = made(name)
    found = contents(write(case, tmp_path / "bundle.tar"))
    words = (
        rb"simulat|inject|truth|(?<!de)fault[s_ -]|culprit|forensics\.fixtures",
        name.encode(),
        name.replace("-", "_").encode(),
    )
    secret = re.compile(b"|".join(words if name != "none" else words[:1]))
    told = {path for path, content in found.items() if secret.search(content)}
    assert not told
    assert not [path for path in found if secret.search(path.encode())]


@pytest.mark.parametrize("style", ["megatron", "deepspeed", "plain"])
def test_our_own_reader_has_no_complaint(hung: Simulation, style: str, tmp_path: Path) -> None:
    connection = open_case([write(hung, tmp_path / "bundle.tar", style=style)])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
    rows = connection.execute("SELECT kind, count(*) FROM sources WHERE status = 'ok' GROUP BY kind").fetchall()
    assert dict(rows)["flight_recorder"] == DENSE.parallel.world
    counted = connection.execute("SELECT count(DISTINCT rank) FROM stacks").fetchall()
    assert counted == [(DENSE.parallel.world,)]
    members = connection.execute("SELECT max(n) FROM (SELECT count(*) n FROM members GROUP BY communicator)").fetchall()
    assert members == [(DENSE.parallel.world,)]


def test_dumps_are_what_torch_reads(hung: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = pytest.importorskip("torch.distributed.flight_recorder.components.loader")
    builder = pytest.importorskip("torch.distributed.flight_recorder.components.builder")
    settings = pytest.importorskip("torch.distributed.flight_recorder.components.config_manager")
    for module in ("builder", "utils"):
        name = f"torch.distributed.flight_recorder.components.{module}"
        monkeypatch.setattr(f"{name}.tabulate", lambda *_, **__: "", raising=False)
    for path, content in contents(write(hung, tmp_path / "bundle.tar", style="megatron")).items():
        if "/fr/" in path:
            (tmp_path / path.rpartition("/")[2].replace("pipe.", "")).write_bytes(content)
    (tmp_path / "bundle.tar").unlink()
    args = settings.JobConfig().parse_args([str(tmp_path), "--allow-incomplete-ranks"])
    details, version = loader.read_dir(args)
    assert len(details) == DENSE.parallel.world and version in ("2.9", "2.10")
    database = builder.build_db(details, args, version)
    assert database.collectives


def test_dumps_have_the_opcodes_of_torch(hung: Simulation, tmp_path: Path) -> None:
    import pickletools

    found = contents(write(hung, tmp_path / "bundle.tar"))
    dump = next(content for path, content in found.items() if "/fr/" in path)
    names = {opcode.name for opcode, _, _ in pickletools.genops(dump)}
    assert names <= {
        "PROTO", "EMPTY_DICT", "MARK", "BINUNICODE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "EMPTY_LIST", "APPENDS",
        "SETITEMS", "BININT1", "BININT2", "BININT", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "TUPLE2", "STOP",
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
