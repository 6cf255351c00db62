"""Exceptions that Python prints and goes on from: they ended nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

TRACE = "Traceback (most recent call last):\n"
LOADER = '  File "/opt/py/torch/utils/data/dataloader.py", line 1466, in __del__\n    self._shutdown_workers()\n'
CHILD = "AssertionError: can only test a child process\n"
DEL = f"Exception ignored in: <function _Iter.__del__ at 0x7f10>\n{TRACE}{LOADER}{CHILD}"
AT_EXIT = f'Error in atexit._run_exitfuncs:\n{TRACE}  File "/srv/fit/hooks.py", line 14, in flush\nValueError: closed file\n'
LOGGING = f'--- Logging error ---\n{TRACE}  File "/lib/logging/__init__.py", line 1100, in emit\nTypeError: not all arguments\n'
FINALIZER = f'{TRACE}  File "/lib/multiprocessing/util.py", line 300, in _run_finalizers\nFileNotFoundError: [Errno 2]\n'
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
CHAINED = f"{DEL}{CHAIN}{TRACE}{LOADER}OSError: [Errno 9] Bad file descriptor\n"
OWN = f'{TRACE}  File "/srv/fit/loop.py", line 40, in step\nValueError: bad shape\n'
SURVIVED = {"finalizer": DEL, "exit": AT_EXIT, "log": LOGGING, "multiprocessing": FINALIZER, "chained": CHAINED}


def of_rank(rank: int, text: str) -> str:
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def log(text: str) -> str:
    return of_rank(0, "step 10/500 loss 2.31\nstep 20/500 loss 2.30") + of_rank(1, f"step 20/500 loss 2.30\n{text}")


@pytest.mark.parametrize("labelled", [True, False], ids=["rank in front", "bare"])
@pytest.mark.parametrize("text", SURVIVED.values(), ids=SURVIVED.keys())
def test_what_python_goes_on_from_is_no_end(tmp_path: Path, text: str, labelled: bool) -> None:
    verdict = pasted(tmp_path, log(text) if labelled else f"step 10/500 loss 2.31\n{text}")
    assert (verdict.outcome, named(verdict), verdict.leads) == (Outcome.INCONCLUSIVE, set(), ())


@pytest.mark.parametrize(
    "text",
    [
        DEL + OWN,
        OWN + DEL,
        # Without a traceback of its own, as of a generator that is closed.
        "Exception ignored in: <generator object fit>\nRuntimeError: generator ignored GeneratorExit\nloading\nsaving\n" + OWN,
        f"Error in sys.excepthook:\n{TRACE}{LOADER}{CHILD}\nOriginal exception was:\n{OWN}",
        DEL + OWN.replace("ValueError: bad shape\n", "") + "\n" + OWN,
    ],
    ids=["before", "after", "without a traceback", "a hook", "a cut one"],
)
def test_an_end_beside_it_counts(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, f"step 10/500 loss 2.31\n{text}")
    assert any("bad shape" in lead for lead in verdict.leads)


def test_an_error_of_a_rank_beside_it_counts(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, log(DEL) + of_rank(1, OWN))
    assert any("rank 1" in lead and "bad shape" in lead for lead in verdict.leads)
