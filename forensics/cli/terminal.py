"""What the terminal can show: columns and colours."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

DEFAULT_COLUMNS = 100


def columns(output: Path | None) -> int:
    """Columns of the report: the terminal's, or COLUMNS, or 100 when nobody watches."""
    watched = output is None and sys.stdout.isatty()
    if watched or os.environ.get("COLUMNS", "").isdigit():
        return max(60, shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns)
    return DEFAULT_COLUMNS


def colours(output: Path | None) -> bool:
    """Whether to colour: on a terminal only, and never with NO_COLOR."""
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
