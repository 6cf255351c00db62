"""Files that are called a runbook quote what has not happened, also at some length."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest._shared.manuals import is_manual

QUOTED = "# Hangs\n\nFrom an old incident:\n```\n{lines}```\nDrain the node.\n"


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [("runbook.md", 6, True), ("runbook.md", 40, False), ("troubleshooting.md", 6, False), ("incident.md", 6, False)],
)
def test_how_much_a_runbook_quotes(name: str, lines: int, expected: bool, tmp_path: Path) -> None:
    text = QUOTED.format(lines="[rank3]: ValueError: bad\n" * lines)
    assert is_manual(text.encode(), f"tickets/{name}") is expected


@pytest.mark.parametrize(
    ("path", "lines", "expected"),
    [
        ("old-incident.md", 2, True),
        ("former/ticket.md", 2, True),
        ("postmortem-2026.md", 8, True),
        ("old-incident.md", 40, False),
        ("threshold.md", 2, False),
        ("old/train.log", 2, False),
    ],
)
def test_notes_on_the_past_quote_what_is_over_without_a_title(path: str, lines: int, expected: bool) -> None:
    text = "In March a rank hung:\n\n```\n" + "[rank5]: ValueError: bad\n" * lines + "```\n"
    assert is_manual(text.encode(), path) is expected


@pytest.mark.parametrize(
    ("name", "lines", "expected"),
    [
        ("Runbook GPU.docx", 3, True),
        ("on-call playbook v2.docx", 3, True),
        ("Runbook GPU.docx", 40, False),
        ("incident 812.docx", 3, False),
        ("runbook.txt", 3, False),
    ],
)
def test_a_runbook_of_word_shows_by_its_name_alone_what_it_is(name: str, lines: int, expected: bool) -> None:
    text = "If a GPU is gone\nyou find\n" + "[Tue May  5 10:00:01 2026] NVRM: Xid (PCI:0000:5d:00): 79, pid=8\n" * lines
    assert is_manual(text.encode(), f"case/{name}/word/document.xml/text.txt") is expected
