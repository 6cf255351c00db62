"""Summaries in place of artefacts: what is kept, what is there twice, and what came beside them."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.bundle.reader import open_bundle
from forensics.case.build import open_case
from forensics.case.database import schema_columns
from forensics.case.reading import read_packed
from forensics.case.summaries.shortening import LEAST_CALLS, shortened
from forensics.case.summaries.writing import summary_section, timed_ranks, write_summarised, write_summary
from tests.recordings.commands import Command

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "fixtures/recorded/recommender-hang.tar.zst"
SAMPLE = ROOT / "fixtures/samples/rank_summary/recommender_ranks_0_and_1.summary"
STEP_NS = 1_000_000


def dump(place: Path, rank: int, times: list[int], pending: int | None = None, group: str = "0", first: int = 500) -> Path:
    """A dump of an NCCL job of two ranks whose ring has wrapped; `pending` is the place of a call that is not done."""
    entries = [
        {
            "record_id": first + n,
            "pg_id": 0,
            "process_group": [group if n else "early", "default_pg" if n else "warm_up"],
            "collective_seq_id": n + 1,
            "op_id": n + 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": 10**18 + at,
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[4]],
            "state": "scheduled" if n == pending else "completed",
            "time_discovered_completed_ns": None if n == pending else 10**18 + at + 10,
            "is_p2p": False,
        }
        for n, at in enumerate(times)
    ]
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"nccl_trace_rank_{rank}.json"
    path.write_bytes(orjson.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}))
    return path


def short_calls(path: Path) -> list[int]:
    types = schema_columns()
    found = shortened(read_packed(open_bundle([path]).artefacts[0], types), types, is_timed=True)
    assert found is not None
    return list(next(rows for rows in found.tables if rows.table == "operations").columns["sequence"])


def even(count: int) -> list[int]:
    return [n * STEP_NS for n in range(count)]


def test_the_end_of_a_history_is_kept_without_gaps(tmp_path: Path) -> None:
    kept = short_calls(dump(tmp_path, 0, [at + (at // 7) % 50_000 for at in even(1000)]))
    assert kept == list(range(kept[0], 1001))
    assert LEAST_CALLS <= len(kept) < 1000


def test_the_history_reaches_back_to_what_is_pending(tmp_path: Path) -> None:
    times = [n * STEP_NS + n * n for n in range(1000)]
    assert short_calls(dump(tmp_path, 0, times, pending=300))[0] == 301


def test_the_history_reaches_back_to_the_pauses_that_the_rank_is_used_to(tmp_path: Path) -> None:
    """A job that saves a checkpoint now and then is silent for a while, and that is no stall."""
    times = [n * STEP_NS + sum(5_000_000_000 for at in (400, 700) if n >= at) for n in range(1000)]
    kept = short_calls(dump(tmp_path, 0, times))
    assert kept[0] <= 400 and kept[-1] == 1000


def rows(paths: list[Path]) -> Any:
    """All facts of a case but the names of files and their numbers."""
    case = open_case(paths)
    found: dict[str, list[Any]] = {}
    for table, columns in schema_columns().items():
        if table not in ("sources", "ingest_warnings", "job_config"):
            names = [name for name in columns if name != "source_id"]
            found[table] = case.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL").fetchall()
    return found


PARTS = [summary_section(one, schema_columns()) or b"" for one in open_bundle([RECORDED]).artefacts if "/fr/" in one.path]


@pytest.mark.slow
@given(st.permutations(range(len(PARTS))), st.lists(st.integers(0, len(PARTS) - 1), max_size=3), st.integers(0, len(PARTS)))
@settings(max_examples=3, deadline=None)
def test_order_copies_and_files_do_not_matter(order: list[int], again: list[int], cut: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "one.summary").write_bytes(b"".join(PARTS))
        mixed = [PARTS[n] for n in [*order, *again]]
        two = [folder / "two/a.summary", folder / "two/b.summary"]
        two[0].parent.mkdir()
        for path, part in zip(two, (mixed[:cut], mixed[cut:]), strict=True):
            path.write_bytes(b"".join(part))
        assert rows([folder / "one.summary"]) == rows([path for path in two if path.stat().st_size])


def test_the_artefact_itself_goes_before_its_summary(tmp_path: Path) -> None:
    for rank in (0, 1):
        dump(tmp_path / "all", rank, even(300))
    write_summary([tmp_path / "all"], tmp_path / "all/node.summary")
    case = open_case([tmp_path / "all"])
    assert case.execute("SELECT count(*) FROM operations").fetchall() == [(600,)]
    warned = case.execute("SELECT message FROM ingest_warnings WHERE message LIKE '%the artefact itself%'").fetchall()
    assert len(warned) == 2


def summary_of(path: Path, output: Path) -> Path:
    """The summary of a rank 0 whose steps are recorded."""
    output.write_bytes(summary_section(open_bundle([path]).artefacts[0], schema_columns(), timed={0}) or b"")
    return output


def test_calls_are_all_kept_where_nothing_else_tells_the_speed(tmp_path: Path) -> None:
    """The end of a record that became slower long ago is as steady as any."""
    dump(tmp_path / "all", 0, [n * STEP_NS + n * n for n in range(1000)])
    write_summary([tmp_path / "all"], tmp_path / "node.summary")
    assert open_case([tmp_path / "node.summary"]).execute("SELECT count(*) FROM operations").fetchall() == [(1000,)]


def test_ranks_with_ten_recorded_steps_are_timed(tmp_path: Path) -> None:
    from forensics.recorder import Recorder

    for rank, steps in ((0, 10), (1, 9)):
        perf = Recorder(str(tmp_path / "stages"), rank=rank, world_size=2)
        for _ in range(steps):
            with perf.step(), perf.stage("forward"):
                pass
        perf.close()
    assert timed_ranks(open_bundle([tmp_path / "stages"]).artefacts, schema_columns()) == {0}


def test_positions_in_groups_without_a_call_left_are_numbers(tmp_path: Path) -> None:
    """The first call was of another group: that the rank made it is still known."""
    path = dump(tmp_path, 0, [n * STEP_NS + n * n for n in range(1000)])
    case = open_case([summary_of(path, tmp_path / "node.summary")])
    stated = "SELECT last_enqueued, last_completed FROM group_views WHERE pg_name = 'early'"
    assert case.execute(stated).fetchall() == [(1, 1)]
    assert case.execute("SELECT count(*) FROM operations WHERE pg_name = 'early'").fetchall() == [(0,)]


def test_what_was_left_out_is_in_the_coverage(tmp_path: Path) -> None:
    path = summary_of(dump(tmp_path, 0, [n * STEP_NS + n * n for n in range(1000)]), tmp_path / "node.summary")
    (row,) = open_case([path]).execute("SELECT rank, status, reason FROM coverage").fetchall()
    assert row == (0, "partial", f"summary: older rows left out: {1000 - LEAST_CALLS} operations")


def test_a_rank_that_was_only_guessed_is_in_no_section(tmp_path: Path) -> None:
    path = dump(tmp_path, 0, even(9)).rename(tmp_path / "7.json")
    section = summary_section(open_bundle([path]).artefacts[0], schema_columns())
    assert section is not None and b'"rank"' not in section[: section.index(b"}")]


def test_damage_costs_what_it_hits(tmp_path: Path) -> None:
    content = SAMPLE.read_bytes()
    cut = tmp_path / "cut.summary"
    cut.write_bytes(content[:-100])
    case = open_case([cut])
    assert case.execute("SELECT count(*) FROM sources WHERE status = 'ok'").fetchall() == [(3,)]
    ((locator, message),) = case.execute("SELECT locator, message FROM ingest_warnings WHERE message LIKE 'cut:%'").fetchall()
    assert locator.startswith("byte=") and "it is left out" in message


def test_a_path_that_leads_elsewhere_is_not_taken(tmp_path: Path) -> None:
    content = SAMPLE.read_bytes().replace(b'"ranks/0/fr/1.json"', b'"../../../etc/x.js"')
    (tmp_path / "x.summary").write_bytes(content)
    assert [one.path for one in open_bundle([tmp_path / "x.summary"]).artefacts][-1].endswith("section-0")


@pytest.mark.slow
def test_a_recorded_bundle_has_the_same_verdict_by_its_summary(forensics: Command, tmp_path: Path) -> None:
    write_summarised(RECORDED, tmp_path / "short.tar")
    with tarfile.open(tmp_path / "short.tar") as tar:
        names = tar.getnames()
    assert "nodes/vm/ranks.summary" in names and not [name for name in names if "/fr/" in name or "/stacks/" in name]
    long, short = (
        orjson.loads(forensics("diagnose", "--format", "json", path).out) for path in (RECORDED, tmp_path / "short.tar")
    )
    for key in ("outcome", "suspects", "victims"):
        assert long[key] == short[key]
    assert forensics("verify", tmp_path / "short.tar").code == forensics("verify", RECORDED).code
