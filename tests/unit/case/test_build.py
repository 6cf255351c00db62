from __future__ import annotations

import gzip
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.reader import open_bundle
from forensics.case import build
from forensics.case.build import build_case, open_case
from forensics.case.columns import CaseWriter
from forensics.case.database import Connection, new_case
from forensics.errors import ExitCode, ForensicsError
from forensics.fixtures.simulator.writers.nic_epochs import packed
from forensics.ingest import choose
from forensics.ingest.interface import Batch, Ingester

SAMPLES = Path(__file__).parents[3] / "fixtures" / "samples"
RECORDER = SAMPLES / "flight_recorder"
START = 1758610505592849034


def case(*paths: Path) -> Connection:
    """A case before alignment: what the sources say, and nothing else."""
    connection = new_case()
    build_case(open_bundle(paths), connection)
    return connection


def rows(connection: Connection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def dump(*completed: bool, frames: bool = False, start: int = START) -> dict[str, Any]:
    stack = [{"name": "step", "filename": "/srv/job/train.py", "line": 8}]
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number + 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": start + number,
            "state": "completed" if done else "scheduled",
            "retired": done,
        }
        | ({"frames": stack} if frames else {})
        for number, done in enumerate(completed)
    ]
    return {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}


def put(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(document).encode())
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples of a collection, laid out as a bundle."""
    root = tmp_path_factory.mktemp("collection") / "b"
    for source, target in {
        "bundle_manifest/bundle.json": "bundle.json",
        "collector_runs/collectors.jsonl": "nodes/gpu-001/collectors.jsonl",
        "node_facts/node.json": "nodes/gpu-001/node.json",
        "library_versions/versions.json": "nodes/gpu-001/versions.json",
        "kernel_log/handmade_dmesg.txt": "nodes/gpu-001/kernel/dmesg.txt",
        "rank_facts/rank.json": "ranks/1/rank.json",
        "process_facts/0.json": "ranks/1/proc/0.json",
        "python_stacks/rank1.0.json": "ranks/1/stacks/0.json",
        "python_stacks/rank1.child27945.0.json": "ranks/1/stacks/child-27945.0.json",
        "flight_recorder/gloo_2.10_rank0.json": "ranks/0/fr/1.json",
        "flight_recorder/gloo_2.10_rank1.json": "ranks/1/fr/1.json",
        "training_log/size.log": "ranks/1/logs/rank1.log",
    }.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SAMPLES / source, root / target)
    (root / "redactions.json").write_text("[]")
    return root


@pytest.fixture(scope="module")
def collected(bundle: Path) -> Connection:
    """The case of that bundle, which nobody changes."""
    return case(bundle)


def test_a_bundle_becomes_facts_with_their_source(collected: Connection) -> None:
    sources = rows(collected, "SELECT path, kind, host, rank, rank_method, status FROM sources ORDER BY source_id")
    assert [path for path, *_ in sources] == sorted(path for path, *_ in sources)
    assert ("ranks/1/fr/1.json", "flight_recorder", "gpu-001", 1, "manifest", "ok") in sources
    assert ("ranks/1/proc/0.json", "process_facts", "gpu-001", 1, "content", "ok") in sources
    assert ("redactions.json", None, None, None, None, "ignored") in sources
    assert {status for *_, status in sources} == {"ok", "ignored"}
    assert rows(collected, "SELECT * FROM ingest_warnings") == []
    assert rows(collected, "SELECT DISTINCT rank, host, snapshot FROM operations ORDER BY rank") == [
        (0, "gpu-001", 1),
        (1, "gpu-001", 1),
    ]
    assert rows(collected, "SELECT count(*) FROM operations o JOIN sources s USING (source_id) WHERE s.rank <> o.rank") == [
        (0,)
    ]
    captured = rows(collected, "SELECT DISTINCT time_ns = captured_ns FROM stacks JOIN sources USING (source_id)")
    assert captured == [(True,)]


def test_what_bundle_json_repeats_counts_once_and_what_only_it_says_stays(collected: Connection) -> None:
    assert rows(collected, "SELECT rank, local_rank, rank_method FROM ranks ORDER BY rank") == [
        (0, None, None),
        (1, 1, "RANK"),
        (2, None, None),
    ]
    clock = rows(collected, "SELECT parser FROM coverage JOIN sources USING (source_id) WHERE coverage.kind = 'fr.pipe'")
    assert set(clock) == {("collector_runs",)}


def test_kernel_messages_are_dated_by_the_clocks_of_their_host(collected: Connection) -> None:
    ((time_ns, offset),) = rows(
        collected,
        "SELECT e.time_ns, c.realtime_ns - c.monotonic_ns FROM device_events e JOIN clocks c USING (host) "
        "WHERE e.code = 109 ORDER BY c.bound_ns, c.realtime_ns LIMIT 1",
    )
    assert time_ns - offset == pytest.approx(12345.678901 * 1e9, abs=1000)


def test_without_clocks_kernel_messages_have_no_time(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "kernel_log/handmade_dmesg.txt", tmp_path / "dmesg.txt")
    assert rows(case(tmp_path), "SELECT DISTINCT time_ns FROM device_events") == [(None,)]


def test_frames_that_several_ranks_share_are_stored_once(tmp_path: Path) -> None:
    for rank in range(3):
        shutil.copy(RECORDER / "gloo_2.10_rank1.pickle", tmp_path / f"rank{rank}.pickle")
    connection = case(tmp_path)
    assert rows(connection, "SELECT count(*) = count(DISTINCT frame) FROM frames") == [(True,)]
    assert rows(connection, "SELECT count(*) = count(DISTINCT (call_path, depth)) FROM call_paths") == [(True,)]
    assert rows(
        connection, "SELECT count(*) FROM operations o LEFT JOIN call_paths p USING (call_path) WHERE p.frame IS NULL"
    ) == [(0,)]


def test_the_same_bytes_under_two_ranks_are_warned_of(tmp_path: Path) -> None:
    for rank in (0, 1):
        put(tmp_path / f"rank{rank}.json", dump(True))
    ((path, message),) = rows(case(tmp_path), "SELECT path, message FROM ingest_warnings")
    assert path == "rank1.json"
    assert message == "same bytes as rank0.json of rank 0: one of them is under a wrong rank"


def test_a_copy_of_a_file_is_no_second_witness(tmp_path: Path) -> None:
    put(tmp_path / "a/rank0.json", dump(True, False))
    put(tmp_path / "b/rank0.json", dump(True, False))
    connection = case(tmp_path)
    assert rows(connection, "SELECT status, rows, reason FROM sources ORDER BY path") == [
        ("ok", 4, None),
        ("ignored", 0, "same bytes as a/rank0.json"),
    ]
    assert rows(connection, "SELECT count(*) FROM operations") == [(2,)]


@pytest.mark.parametrize("copy", ["stderr (copy).log", "stderr - Copy.log", "stderr (1).log", "Copy of stderr.log"])
def test_of_a_file_and_the_copy_that_a_desktop_made_the_file_counts(copy: str, tmp_path: Path) -> None:
    for name in (copy, "stderr.log"):
        (tmp_path / name).write_text("[rank1]: ValueError: x\n")
    connection = case(tmp_path)
    assert rows(connection, "SELECT path FROM sources WHERE status = 'ok'") == [("stderr.log",)]
    (tmp_path / "stderr.log").unlink()
    assert rows(case(tmp_path), "SELECT path FROM sources WHERE status = 'ok'") == [(copy,)]


def test_a_pickle_of_the_moment_lends_its_call_paths_to_the_json(tmp_path: Path) -> None:
    put(tmp_path / "bundle.json", {"schema": "forensics.bundle/1"})
    put(tmp_path / "ranks/0/fr/0.json", dump(True, False))
    put(tmp_path / "ranks/0/fr/1.json", dump(True, False) | {"comm_lib_version": "later"})
    (tmp_path / "ranks/0/fr/nccl_trace_rank_0").write_bytes(pickle.dumps(dump(True, False, frames=True), 2))
    connection = case(tmp_path)
    assert rows(connection, "SELECT path, status FROM sources WHERE rank = 0 ORDER BY path") == [
        ("ranks/0/fr/0.json", "ok"),
        ("ranks/0/fr/1.json", "ok"),
        ("ranks/0/fr/nccl_trace_rank_0", "ignored"),
    ]
    assert rows(connection, "SELECT snapshot, locator, call_path IS NULL FROM operations ORDER BY ALL") == [
        (0, 0, False),
        (0, 1, False),
        (1, 0, False),
        (1, 1, False),
    ]


def test_dumps_without_numbers_are_numbered_by_the_time_inside(tmp_path: Path) -> None:
    put(tmp_path / "a/rank0.json", dump(True, True, True))
    put(tmp_path / "b/rank0.json", dump(True))
    put(tmp_path / "c/rank0.json", dump(True, False))
    connection = case(tmp_path)
    found = rows(connection, "SELECT DISTINCT path, snapshot FROM operations JOIN sources USING (source_id) ORDER BY path")
    assert found == [("a/rank0.json", 2), ("b/rank0.json", 0), ("c/rank0.json", 1)]
    assert rows(connection, "SELECT * FROM ingest_warnings") == []


def test_two_dumps_with_one_number_are_both_kept_with_a_warning(tmp_path: Path) -> None:
    put(tmp_path / "a/rank0.fr.0.json", dump(True, True))
    put(tmp_path / "b/rank0.fr.0.json", dump(True))
    connection = case(tmp_path)
    assert rows(connection, "SELECT path, status FROM sources ORDER BY path") == [
        ("a/rank0.fr.0.json", "ok"),
        ("b/rank0.fr.0.json", "ok"),
    ]
    assert rows(connection, "SELECT DISTINCT path, snapshot FROM operations JOIN sources USING (source_id) ORDER BY 1") == [
        ("a/rank0.fr.0.json", 1),
        ("b/rank0.fr.0.json", 0),
    ]
    assert rows(connection, "SELECT path, message FROM ingest_warnings") == [
        ("b/rank0.fr.0.json", "rank 0 has more than one capture with this number; kept, ordered by time")
    ]


def thread(pid: int, *frames: tuple[str, str]) -> dict[str, Any]:
    listed = [{"name": name, "filename": file, "line": 1} for name, file in frames]
    return {"pid": pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": pid, "owns_gil": False, "frames": listed}


BOOTSTRAP = ("_bootstrap", "/usr/lib/python3.11/multiprocessing/process.py")


def test_a_process_of_multiprocessing_is_a_child_only_beside_another_process_of_its_rank(tmp_path: Path) -> None:
    put(tmp_path / "rank0.json", [thread(10, ("step", "/srv/a.py"))])
    put(tmp_path / "x/rank0.json", [thread(11, ("write", "/srv/a.py"), BOOTSTRAP)])
    put(tmp_path / "rank1.json", [thread(12, ("step", "/srv/a.py"), BOOTSTRAP)])
    assert rows(case(tmp_path), "SELECT pid, is_child FROM stacks ORDER BY pid") == [(10, False), (11, True), (12, False)]


def test_a_dump_of_an_unknown_rank_is_kept_and_warned_of(tmp_path: Path) -> None:
    put(tmp_path / "fr.json", dump(True))
    connection = case(tmp_path)
    assert rows(connection, "SELECT rank, state FROM operations") == [(None, "done")]
    assert rows(connection, "SELECT message FROM ingest_warnings") == [
        ("no rank is known: neither its content, nor a manifest, nor its path says one",)
    ]


def test_damage_is_said_in_sources(tmp_path: Path) -> None:
    whole = json.dumps(dump(True, True)).encode()
    (tmp_path / "rank0.json").write_bytes(whole[:-40])
    (tmp_path / "rank1.json").write_bytes(b"\x80\x02}(X\x09\x00\x00\x00pg_configX\x09\x00\x00\x00pg_statuscos\nsystem\n.")
    (tmp_path / "rank2.json.gz").write_bytes(gzip.compress(whole)[:-30])
    (tmp_path / "rank3.json.gz").write_bytes(gzip.compress(whole)[:4])
    found = {path: (status, count) for path, status, count in rows(case(tmp_path), "SELECT path, status, rows FROM sources")}
    assert found["rank0.json"] == ("partial", 3)
    assert found["rank1.json"] == ("rejected", 0)
    assert found["rank2.json.gz"][0] in ("partial", "rejected")
    assert found["rank3.json.gz"] == ("rejected", 0)


def test_a_member_that_fails_its_checksum_is_read_and_partial(tmp_path: Path) -> None:
    put(tmp_path / "bundle.json", {"schema": "forensics.bundle/1"})
    put(tmp_path / "ranks/0/fr/0.json", dump(True))
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  ranks/0/fr/0.json\n")
    connection = case(tmp_path)
    assert rows(connection, "SELECT status, rows FROM sources WHERE rank = 0") == [("partial", 3)]
    assert rows(connection, "SELECT path FROM ingest_warnings") == [("ranks/0/fr/0.json",)]


def test_text_that_no_database_takes_is_repaired(tmp_path: Path) -> None:
    document = dump(True)
    document["entries"][0] |= {"process_group": ["\ud800bad", "nul\0"], "thread_name": "é"}
    (tmp_path / "rank0.pickle").write_bytes(pickle.dumps(document, 2))
    assert rows(case(tmp_path), "SELECT pg_name, thread FROM operations") == [("?bad", "é")]


def test_numbers_too_large_for_a_column_become_null(tmp_path: Path) -> None:
    document = dump(True)
    document["entries"][0] |= {"pg_id": 1 << 40, "record_id": 1 << 80}
    put(tmp_path / "rank0.json", document)
    assert rows(case(tmp_path), "SELECT pg_id, record_id FROM operations") == [(None, None)]


def test_an_ingester_that_fails_costs_only_its_own_artefact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(artefact: Artefact) -> Any:
        yield Batch("log_events", {"kind": ["x"], "text": ["y"]})
        raise KeyError("surprise")

    broken = Ingester("broken", "broken", lambda head, path: 100, explode)
    monkeypatch.setattr("forensics.case.reading.choose", lambda head, path: broken if "bad" in path else choose(head, path))
    put(tmp_path / "bad.json", {})
    put(tmp_path / "rank0.json", dump(True))
    connection = case(tmp_path)
    assert rows(connection, "SELECT path, status, rows FROM sources ORDER BY path") == [
        ("bad.json", "partial", 1),
        ("rank0.json", "ok", 3),
    ]
    assert "surprise" in rows(connection, "SELECT message FROM ingest_warnings")[0][0]


def test_columns_that_the_schema_lacks_are_a_defect_and_not_dropped() -> None:
    writer = CaseWriter(new_case())
    with pytest.raises(ValueError, match="nonsense"):
        writer.add("ranks", {"rank": [1], "nonsense": [2]}, {})
    with pytest.raises(ValueError, match="lengths"):
        writer.add("ranks", {"rank": [1], "pid": [2, 3]}, {})


def test_rows_of_nothing_but_nulls_are_rows() -> None:
    connection = new_case()
    writer = CaseWriter(connection)
    writer.add("group_views", {"pg_name": [None, None], "pg_id": [None, None], "members": [None, None]}, {})
    writer.flush()
    assert rows(connection, "SELECT pg_name, pg_id, members FROM group_views") == [(None, None, None)] * 2


def test_batches_of_unlike_columns_are_joined_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = new_case()
    writer = CaseWriter(connection)
    monkeypatch.setattr("forensics.case.columns.FLUSH_ROWS", 3)
    writer.add("group_views", {"pg_name": ["a", None], "members": [[0, 1], None]}, {"rank": 4})
    writer.add("group_views", {"pg_id": [7, 8], "last_enqueued": [None, -1]}, {})
    writer.add("group_views", {"members": [[]]}, {"rank": 5})
    writer.flush()
    assert rows(connection, "SELECT rank, pg_name, members, pg_id, last_enqueued FROM group_views") == [
        (4, "a", [0, 1], None, None),
        (4, None, None, None, None),
        (None, None, None, 7, None),
        (None, None, None, 8, -1),
        (5, None, [], None, None),
    ]


def test_a_case_file_can_be_read_by_the_oldest_format_and_opened_again(tmp_path: Path) -> None:
    put(tmp_path / "in/rank0.json", dump(True, False))
    path = tmp_path / "case.duckdb"
    open_case([tmp_path / "in"], path).close()
    with duckdb.connect(str(path), read_only=True) as stored:
        ((tags,),) = stored.execute("SELECT tags FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
        assert str(tags["storage_version"]).startswith("v1.0.0")
    before = path.read_bytes()
    connection = open_case([path])
    assert rows(connection, "SELECT count(*) FROM operations") == [(2,)]
    connection.execute("DELETE FROM operations")
    connection.close()
    assert path.read_bytes() == before


def test_a_case_file_that_is_not_one_is_refused(tmp_path: Path) -> None:
    other, cut = tmp_path / "other.duckdb", tmp_path / "cut.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE VIEW sources AS SELECT 1 AS source_id")
    cut.write_bytes(other.read_bytes()[:5000])
    for path in (other, cut):
        with pytest.raises(ForensicsError) as caught:
            open_case([path])
        assert caught.value.code is ExitCode.UNREADABLE
    with pytest.raises(ForensicsError, match="alone"):
        open_case([other, tmp_path])


def test_a_case_file_is_never_overwritten(tmp_path: Path) -> None:
    put(tmp_path / "in/rank0.json", dump(True))
    (tmp_path / "case.duckdb").write_text("precious")
    with pytest.raises(ForensicsError, match="already exists"):
        open_case([tmp_path / "in"], tmp_path / "case.duckdb")
    assert (tmp_path / "case.duckdb").read_text() == "precious"


def test_a_number_in_the_name_of_a_capture_of_a_nic_is_no_rank(tmp_path: Path) -> None:
    text = {"host": "n1", "nic": "mlx5_0", "epoch_ns": 32_000, "queue_pairs": [{"number": 7}]}
    for number in range(3):
        content = packed({**text, "nic": f"mlx5_{number}"}, [(0, 0, 100, np.array([5], np.uint32))])
        (tmp_path / f"capture-{number}.epochs").write_bytes(content)
    assert rows(case(tmp_path), "SELECT DISTINCT rank FROM sources") == [(None,)]


def test_progress_names_every_artefact(tmp_path: Path) -> None:
    for rank in range(3):
        put(tmp_path / f"rank{rank}.json", dump(True))
    seen: list[tuple[int, int, str]] = []
    build_case(open_bundle([tmp_path]), new_case(), lambda done, total, path: seen.append((done, total, path)))
    assert seen == [(0, 3, "rank0.json"), (1, 3, "rank1.json"), (2, 3, "rank2.json")]


def test_reading_an_artefact_depends_on_nothing_else(bundle: Path) -> None:
    artefacts = open_bundle([bundle]).artefacts
    forwards = [build.read_artefact(artefact) for artefact in artefacts]
    backwards = [build.read_artefact(artefact) for artefact in reversed(artefacts)]
    assert forwards == backwards[::-1]
