from __future__ import annotations

import pytest

from forensics.frame_form import is_native, is_upside_down, plain_frame


@pytest.mark.parametrize(
    ("name", "filename", "line"),
    [
        ("_start", "python3.11", None),
        ("poll", "libc.so.6", None),
        ("wait", "ProcessGroupNCCL.cpp", 12),
        ("c10d::Work::wait()", "Work", 3),
        ("_ZN4c10d4Work4waitEv", "libtorch_cpu.so", None),
        ("?", None, None),
    ],
)
def test_frames_of_compiled_libraries(name: str, filename: str | None, line: int | None) -> None:
    assert is_native(name, filename, line)


@pytest.mark.parametrize(
    ("name", "filename", "line"),
    [
        ("main", "train.py", 3),
        ("main", "/srv/job/train.py", None),
        ("run", "<frozen runpy>", 88),
        ("<module>", "/opt/venv/bin/torchrun", 8),
        ("<module>", "<stdin>", None),
    ],
)
def test_frames_of_python(name: str, filename: str, line: int | None) -> None:
    assert not is_native(name, filename, line)


def test_qualifiers_and_folders_make_no_difference() -> None:
    assert plain_frame("Condition.wait", "/usr/lib/python3.11/threading.py", 327) == plain_frame("wait", "threading.py", 327)
    assert plain_frame("f.<locals>.g", "a/b.py", 1) == plain_frame("g", "b.py", 1)


def test_a_stack_stands_on_its_head_when_the_entry_comes_first() -> None:
    stack = [("wait", "threading.py", 3), ("main", "train.py", 2), ("<module>", "train.py", 9)]
    native = ("_start", "python3.11", None)
    assert not is_upside_down(stack)
    assert is_upside_down(stack[::-1])
    assert is_upside_down([native, *stack[::-1]])
    imported = [
        ("<module>", "train.py", 1),
        ("_call_with_frames_removed", "<frozen importlib._bootstrap>", 2),
        ("load", "app.py", 3),
    ]
    assert not is_upside_down(imported)
