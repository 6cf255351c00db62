"""`forensics ingest`, `query` and `show`: from a report back to the facts it rests on."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.collection import loose, pid_of, whole, write
from tests.recordings.commands import Command
from tests.recordings.places import LOADER_QUEUE
from tests.unit.cli.conftest import stuck

OK, USAGE, UNREADABLE = 0, 2, 3


@pytest.fixture(scope="module")
def ingested(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ingested") / "case.duckdb"
    open_case([bundle], path).close()
    return path


@pytest.fixture
def case(ingested: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(ingested, tmp_path))


def test_ingest_says_what_it_understood(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    answer = forensics("ingest", bundle, "-o", tmp_path / "case.duckdb")
    rows = [line.split("\t") for line in answer.out.splitlines()]
    assert ["flight_recorder", "ok", "4 files"] in [row[:3] for row in rows]
    assert ["python_stacks", "ok", "12 files"] in [row[:3] for row in rows]
    assert answer.err == ""


def test_ingest_warns_of_what_it_could_not_read(forensics: Command, tmp_path: Path) -> None:
    folder = loose(stuck(), tmp_path / "dumps")
    damaged = folder / "nccl_trace_rank_3"
    damaged.write_bytes(damaged.read_bytes()[:1500])
    answer = forensics("ingest", folder, "-o", tmp_path / "case.duckdb")
    assert answer.code == OK
    assert "nccl_trace_rank_3" in answer.err and "byte" in answer.err


@pytest.mark.slow
def test_ingest_replaces_only_when_stated(forensics: Command, bundle: Path, case: Path) -> None:
    before = case.read_bytes()
    refused = forensics("ingest", bundle, "-o", case)
    assert refused.code == USAGE
    assert "--force" in refused.err
    assert case.read_bytes() == before
    assert forensics("ingest", bundle, "-o", case, "--force").code == OK


def test_a_failed_ingest_does_not_cost_the_old_case(forensics: Command, case: Path, tmp_path: Path) -> None:
    """--force replaces a case by a new one, not by nothing."""
    before = case.read_bytes()
    assert forensics("ingest", tmp_path / "no-such-bundle", "-o", case, "--force").code == UNREADABLE
    assert case.read_bytes() == before


def test_ingest_into_a_folder_that_does_not_exist(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    answer = forensics("ingest", bundle, "-o", tmp_path / "missing" / "case.duckdb")
    assert answer.code in (USAGE, UNREADABLE)
    assert len(answer.err.splitlines()) == 1


def test_query_as_a_table(forensics: Command, case: Path) -> None:
    answer = forensics("query", case, "SELECT rank, max(sequence) AS last FROM operations GROUP BY rank ORDER BY rank")
    assert [line.split() for line in answer.out.splitlines()] == [
        ["rank", "last"],
        ["0", "13"],
        ["1", "13"],
        ["2", "12"],
        ["3", "13"],
    ]


def test_query_as_csv(forensics: Command, case: Path) -> None:
    answer = forensics("query", case, "SELECT 'a,b' AS x, NULL AS y, 'say \"hi\"' AS z", "--format", "csv")
    assert list(csv.reader(io.StringIO(answer.out))) == [["x", "y", "z"], ["a,b", "", 'say "hi"']]


def test_query_as_json(forensics: Command, case: Path) -> None:
    sql = "SELECT rank, state, enqueued_ns, NULL AS nothing FROM operations WHERE state = 'pending' ORDER BY rank"
    rows = json.loads(forensics("query", case, sql, "-f", "json").out)
    assert [row["rank"] for row in rows] == [0, 1, 3]
    assert rows[0]["nothing"] is None
    assert isinstance(rows[0]["enqueued_ns"], int)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_query_without_rows(forensics: Command, case: Path, form: str) -> None:
    answer = forensics("query", case, "SELECT rank FROM operations WHERE rank = 99", "-f", form)
    assert answer.code == OK
    assert answer.out.strip() in ("rank", "[]")


def test_a_list_in_json_stays_a_list(forensics: Command, case: Path) -> None:
    rows = json.loads(forensics("query", case, "SELECT list(rank ORDER BY rank) AS ranks FROM ranks", "-f", "json").out)
    assert rows == [{"ranks": [0, 1, 2, 3]}]


@pytest.mark.parametrize("sql", ["SELEC 1", "SELECT * FROM no_such_table", "SELECT 1 +", "", "SELECT 'x'::INTEGER"])
def test_a_query_that_is_wrong_is_a_usage_error(forensics: Command, case: Path, sql: str) -> None:
    answer = forensics("query", case, sql)
    assert (answer.code, answer.out.strip()) == (USAGE, "")
    assert answer.err.startswith("forensics: ")


def test_a_query_cannot_change_the_case(forensics: Command, case: Path) -> None:
    before = case.read_bytes()
    forensics("query", case, "DELETE FROM operations")
    assert case.read_bytes() == before


def test_a_query_takes_a_bundle_too(forensics: Command, bundle: Path) -> None:
    assert forensics("query", bundle, "SELECT count(*) AS n FROM ranks", "-f", "csv").out.split() == ["n", "4"]


def test_a_query_shows_evidence_on_one_line(forensics: Command, tmp_path: Path) -> None:
    """A frame name with an escape must not repaint the terminal of whoever queries the case."""
    folder = whole(stuck(), {2: (("steal\x1b[2J\nrow", "/srv/job/a.py", 1), *LOADER_QUEUE)}).write(tmp_path / "bundle")
    answer = forensics("query", folder, "SELECT DISTINCT name FROM frames WHERE name LIKE 'steal%'")
    assert "\x1b" not in answer.out
    assert len(answer.out.splitlines()) == 2


def test_a_query_of_something_that_is_not_there(forensics: Command, tmp_path: Path) -> None:
    answer = forensics("query", tmp_path / "none.duckdb", "SELECT 1")
    assert answer.code == UNREADABLE
    assert "none.duckdb" in answer.err


def test_a_database_that_is_no_case_is_refused(forensics: Command, tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "other.duckdb"
    duckdb.connect(str(path)).close()
    answer = forensics("query", path, "SELECT 1")
    assert answer.code == UNREADABLE
    assert "other.duckdb" in answer.err


def test_a_damaged_case_is_refused(forensics: Command, case: Path) -> None:
    content = bytearray(case.read_bytes())
    content[4096:12288] = bytes(8192)
    case.write_bytes(bytes(content))
    answer = forensics("query", case, "SELECT count(*) FROM operations")
    assert answer.code in (OK, UNREADABLE)
    assert answer.code == UNREADABLE or answer.out


def test_show_lists_the_artefacts(forensics: Command, bundle: Path) -> None:
    answer = forensics("show", bundle)
    names = [line.split()[1] for line in answer.out.splitlines()]
    assert {"bundle.json", "ranks/2/fr/0.json", "ranks/2/stacks/0.json", "ranks/2/rank.json"} <= set(names)
    assert names == sorted(names)


@pytest.mark.slow
def test_show_opens_what_a_report_points_at(forensics: Command, bundle: Path) -> None:
    """Every source of an evidence line can be opened as it is printed."""
    document = json.loads(forensics("diagnose", bundle, "-f", "json").out)
    sources = [line["source"] for suspect in document["suspects"] for line in suspect["evidence"]]
    assert sources and all(sources)
    for source in sources:
        answer = forensics("show", bundle, source)
        assert answer.code == OK, answer.err
        assert answer.out.strip()


def test_show_an_entry_of_a_dump(forensics: Command, bundle: Path) -> None:
    entry = json.loads(forensics("show", bundle, "ranks/0/fr/0.json#entry=12").out)
    assert (entry["collective_seq_id"], entry["retired"]) == (13, False)


def test_show_an_entry_of_a_pickle(forensics: Command, tmp_path: Path) -> None:
    folder = loose(stuck(), tmp_path / "dumps")
    entry = json.loads(forensics("show", folder, "nccl_trace_rank_0#entry=3").out)
    assert entry["record_id"] == 3


def test_show_a_thread_of_a_stack(forensics: Command, bundle: Path) -> None:
    (thread,) = json.loads(forensics("show", bundle, f"ranks/2/stacks/0.json#thread={pid_of(2)}").out)
    assert thread["frames"][0]["name"] == "_PollLikeSelector.select"


def test_show_a_line_of_a_log(forensics: Command, tmp_path: Path) -> None:
    found = whole(stuck(), {2: LOADER_QUEUE})
    found.log(2, *(f"step {number}: loss 1.0" for number in range(20)))
    answer = forensics("show", found.write(tmp_path / "bundle"), "ranks/2/logs/train.log#line=11")
    marked = [line for line in answer.out.splitlines() if line.startswith(">")]
    assert [line.split()[1:] for line in marked] == [["11", "step", "10:", "loss", "1.0"]]


def test_show_a_whole_artefact(forensics: Command, bundle: Path) -> None:
    assert json.loads(forensics("show", bundle, "ranks/2/rank.json").out)["rank"] == 2


def test_show_a_single_file(forensics: Command, tmp_path: Path) -> None:
    folder = loose(stuck(), tmp_path / "dumps")
    assert forensics("show", folder / "nccl_trace_rank_0", "nccl_trace_rank_0#entry=0").code == OK


@pytest.mark.parametrize("source", ["ranks/9/fr/0.json", "ranks/2/fr/0.json/", "nonsense", "#", "#entry=1"])
def test_show_of_an_unknown_path_is_a_usage_error(forensics: Command, bundle: Path, source: str) -> None:
    answer = forensics("show", bundle, source)
    assert (answer.code, answer.out) == (USAGE, "")
    assert "forensics show" in answer.err


@pytest.mark.parametrize(
    "locator", ["entry=99999", "entry=", "entry=-1", "entry=x", "line=0", "line=99999", "line=1e3", "line=\u0663", "thread=x"]
)
def test_show_of_a_place_that_is_not_there_says_so(forensics: Command, bundle: Path, locator: str) -> None:
    answer = forensics("show", bundle, f"ranks/0/fr/0.json#{locator}")
    assert answer.code == UNREADABLE
    assert answer.out == ""
    assert "ranks/0/fr/0.json" in answer.err


def test_show_keeps_the_terminal_as_it_is(forensics: Command, tmp_path: Path) -> None:
    folder = write(tmp_path / "logs", {"rank0.log": b"Traceback (most recent call\x1b[2J last):\n\x9b31mred\n"})
    answer = forensics("show", folder, "rank0.log#line=1")
    assert answer.code == OK
    assert "\x1b" not in answer.out and "\x9b" not in answer.out


def test_show_finds_a_name_with_a_hash(forensics: Command, tmp_path: Path) -> None:
    folder = write(tmp_path / "odd", {"rank#0.log": b"one\ntwo\nthree\n"})
    assert "two" in forensics("show", folder, "rank#0.log#line=2").out
    assert "two" in forensics("show", folder, "rank#0.log").out


def test_show_and_query_need_something_to_read(forensics: Command, tmp_path: Path) -> None:
    assert forensics("show", tmp_path / "none").code == UNREADABLE
    assert forensics("show").code == USAGE
    assert forensics("query", tmp_path / "none").code == USAGE
