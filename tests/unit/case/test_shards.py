"""Columns in place of raw artefacts: the same verdict, and shards of strangers cost only themselves."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import duckdb
import fsspec
import pytest

from forensics.case.build import open_case
from forensics.case.shards import reading
from forensics.case.shards.writing import write_normalized
from tests.recordings.commands import Command

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "fixtures/recorded/recommender-hang.tar.zst"


def unpacked(tmp_path: Path, bundle: Path) -> Path:
    with tarfile.open(bundle) as tar:
        tar.extractall(tmp_path / "open", filter="data")
    (tmp_path / "open/SHA256SUMS").unlink()
    return tmp_path / "open"


@pytest.fixture(scope="module")
def normalized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("normalized") / "shards.tar"
    write_normalized(RECORDED, place, least_bytes=0)
    return place


def same(forensics: Command, raw: Path, shards: Path) -> None:
    one, two = (forensics("diagnose", "--format", "json", path) for path in (raw, shards))
    assert (one.code, one.out) == (two.code, two.out)


@pytest.mark.slow
def test_the_verdict_on_a_recorded_bundle_is_the_same_byte_for_byte(forensics: Command, normalized: Path) -> None:
    with tarfile.open(normalized) as tar:
        assert sum(name.endswith(".parquet") for name in tar.getnames()) > 8
    same(forensics, RECORDED, normalized)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", ["gpu-failed", "line-shared", "slow-in-turn", "behind-in-ras", "rank-process-stopped", "gpu-behind-in-sockets"]
)
@pytest.mark.first(1)
def test_each_kind_of_evidence_keeps_its_verdict_byte_for_byte(scenario: str, forensics: Command, tmp_path: Path) -> None:
    """Counters, reports of GPUs, shim logs, stage files, NCCL's RAS, stacks of processes that stand, dumps: all as columns."""
    raw = ROOT / "fixtures/scenarios" / scenario / "bundle.tar.zst"
    write_normalized(raw, tmp_path / "shards.tar", least_bytes=0)
    same(forensics, raw, tmp_path / "shards.tar")


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["nic-down@node1.gpu1"])
def test_the_verdict_on_a_simulated_bundle_is_the_same(fault: str, forensics: Command, tmp_path: Path) -> None:
    few = ("--set", "parallel.data=1", "--ring", 200, "--iterations", 4)
    made = forensics("simulate", "--fault", fault, "--seed", 7, *few, "-o", tmp_path / "raw.tar")
    assert made.code == 0, made.err
    size = write_normalized(tmp_path / "raw.tar", tmp_path / "shards.tar")
    assert size < (tmp_path / "raw.tar").stat().st_size
    same(forensics, tmp_path / "raw.tar", tmp_path / "shards.tar")


@pytest.mark.slow
def test_shards_in_an_object_store_have_the_verdict_of_the_raw_bundle(
    forensics: Command, normalized: Path, tmp_path: Path
) -> None:
    """A folder of columns, as a fleet may leave it; a folder has no digest of its own."""
    root, store = unpacked(tmp_path, normalized), fsspec.filesystem("memory")
    for path in filter(Path.is_file, root.rglob("*")):
        store.pipe(f"/bucket/job/{path.relative_to(root)}", path.read_bytes())
    answers = (forensics("diagnose", "--format", "json", path) for path in (RECORDED, "memory://bucket/job"))
    one, two = (json.loads(answer.out) | {"bundle_sha256": None} for answer in answers)
    store.rm("/bucket", recursive=True)
    assert one == two and one["suspects"]


HOSTILE = {
    "rubbish": None,
    "types": "SELECT 'x' AS source_id, 7 AS pid, [1] AS rank FROM range({rows})",
    "columns": "SELECT 1 AS unexpected FROM range({rows})",
    "rows": "SELECT 1 AS unexpected FROM range(7000000)",
}


@pytest.mark.slow
@pytest.mark.parametrize("sql", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_table_costs_only_itself(sql: str | None, normalized: Path, tmp_path: Path) -> None:
    root = unpacked(tmp_path, normalized)
    place = next(root.glob("ranks/1/**/stacks.parquet"))
    rows = sum(b["rows"] for b in json.loads((place.parent / "reading.json").read_bytes())["batches"] if b["table"] == "stacks")
    place.write_bytes(b"PAR1" + b"\xff" * 5000 + b"PAR1")
    if sql is not None:
        place.unlink()
        duckdb.execute(f"COPY ({sql.format(rows=rows)}) TO '{place}' (FORMAT parquet)")
    connection = open_case([root])
    warned = connection.execute("SELECT path, message FROM ingest_warnings WHERE message LIKE '%left out%'").fetchall()
    assert [path for path, _ in warned] == [place.parent.relative_to(root).as_posix().removesuffix(".shard")]
    assert connection.execute("SELECT count(*) FROM stacks").fetchall() != [(0,)]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT repeat('x', 1000) AS text FROM range(5000)", "VARCHAR"),
        ("SELECT 7::BIGINT AS text FROM range(600000)", "BIGINT"),
        ("SELECT 'x' AS text FROM range(300000)", "VARCHAR"),
    ],
)
def test_values_that_a_dictionary_multiplies_are_refused_before_they_are_kept(
    sql: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has some kilobytes, and so says its footer; its values have 4 MB and more."""
    place = tmp_path / "bomb.parquet"
    duckdb.execute(f"COPY ({sql}) TO '{place}' (FORMAT parquet)")
    ((rows,),) = duckdb.execute(f"SELECT count(*) FROM read_parquet('{place}')").fetchall()
    monkeypatch.setattr(reading, "MOST_EXPANDED", 4 << 20)
    assert place.stat().st_size < 1 << 17
    with pytest.raises(reading._Refused, match="expand to"):
        reading._table(lambda: place.open("rb"), [reading._Batch("texts", rows, ("text",))], {"text": kind})


@pytest.mark.slow
@pytest.mark.parametrize(
    "record", ["", "[]", '{"schema": "forensics.shard/1", "parser": 1}', '{"schema": "forensics.shard/9"}']
)
def test_a_record_of_nonsense_is_one_warning(record: str, normalized: Path, tmp_path: Path) -> None:
    root = unpacked(tmp_path, normalized)
    next(root.glob("ranks/1/**/reading.json")).write_text(record)
    rows = open_case([root]).execute("SELECT reason FROM sources WHERE status = 'rejected'").fetchall()
    assert rows == [("its record is of another form: nothing of it is used",)]
