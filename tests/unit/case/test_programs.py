"""Source code beside the evidence: what it quotes has not happened, and output that follows a program has."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.errors import ForensicsError

PROGRAM = '''"""Reads logs."""
import re

SAMPLE = """
[rank3]: KeyError: 'loss'
Traceback (most recent call last):
"""


def first(text: str) -> bool:
    return bool(re.search("torch.OutOfMemoryError: CUDA out of memory", text)) or text.startswith("[rank1]:")
'''
LOG = "[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'loss'\n"


@pytest.mark.parametrize("name", ["parse.py", "parse.log", "parse", "parse.txt"])
def test_what_a_program_quotes_is_no_evidence_whatever_the_file_is_called(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "job.log").write_text(LOG)
    with open_case([tmp_path]) as case:
        found = case.execute(
            "SELECT path, status, reason FROM sources ORDER BY path = ?", [f"{tmp_path.name}/{name}"]
        ).fetchall()
        assert case.execute("SELECT DISTINCT rank FROM log_events").fetchall() == [(3,)]
    assert [row[1:] for row in found] == [("ok", None), ("ignored", "source code of a program")]


def test_a_program_alone_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    with pytest.raises(ForensicsError, match="source code of a program"), open_case([tmp_path / "train.py"]):
        pass


@pytest.mark.parametrize(
    "above", [PROGRAM, "import torch\n", "$ python - <<E\n" + PROGRAM + "E\n", "def collate(x):\n    ...\n" * 400]
)
def test_output_below_a_program_is_read(above: str, tmp_path: Path) -> None:
    (tmp_path / "ticket.txt").write_text(above + LOG)
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT DISTINCT rank FROM log_events").fetchall() == [(3,)]


@pytest.mark.parametrize("nested", ["(" * 50_000, "-" * 200_000 + "1", "[" * 150 + "]" * 150, "1" + "+1" * 100_000])
def test_a_hostile_program_costs_nothing(nested: str, tmp_path: Path) -> None:
    (tmp_path / "deep.txt").write_text(f"import os\nx = {nested}\n")
    (tmp_path / "job.log").write_text(LOG)
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT DISTINCT rank FROM log_events").fetchall() == [(3,)]


@pytest.mark.parametrize("first", ["import torch\n", "# How to reproduce\n\n    a\n    b\n    c\n    d\n"])
def test_what_stands_far_below_a_first_line_like_theirs_is_read_as_well(first: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(first + LOG + "step done\n" * 1000 + "SLURM_JOB_ID=4711\n")
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT value FROM job_config WHERE key = 'job.id'").fetchall() == [("4711",)]


@pytest.mark.parametrize(
    ("path", "is_read"),
    [("README.md", False), ("CHANGELOG.md", False), ("docs/incidents.md", False), ("ticket.md", True), ("notes/hang.md", True)],
)
def test_what_a_repository_keeps_in_words_is_of_the_past(path: str, is_read: bool, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(f"# Run 88\n\nIt ended so:\n\n```\n{LOG}```\n\nThe node was replaced.\n")
    (tmp_path / "job.log").write_text("step 1/9 loss 2.0\nstep 2/9 loss 1.9\n")
    with open_case([tmp_path]) as case:
        assert bool(case.execute("SELECT 1 FROM log_events").fetchall()) is is_read
