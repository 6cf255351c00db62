"""Source code among the evidence: what its string constants quote has not happened."""

from __future__ import annotations

import ast
import re
import warnings

LARGEST_PROGRAM = 1 << 20
"""Bytes: what is larger is no program that people wrote, and is not parsed."""
# Settings and tables read as assignments and expressions too; none of these do.
_STATEMENT = re.compile(rb"^(?:import|from|def|class|async def) [A-Za-z_.]", re.MULTILINE)
_OF_PROGRAMS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def may_be_program(head: bytes) -> bool:
    """Whether the beginning of an artefact has a statement that only a Python program has."""
    return b"\0" not in head and _STATEMENT.search(head) is not None


def is_program(content: bytes) -> bool:
    """Whether the whole content is Python source with definitions or imports: output of the program below it is none."""
    if len(content) >= LARGEST_PROGRAM:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(statement, _OF_PROGRAMS) for statement in tree.body)
