"""Errors without a traceback, as logs hold them that were searched or cut: where to begin, and never an accusation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, verdict_of

LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
OWN = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
STEPS = "".join(f"step {at} loss 2.{at}\n" for at in range(10, 40, 10))


def write(folder: Path, ends: str) -> None:
    """Logs of ranks: o ends by an error of its own, l by the loss of a peer, n by nothing, s goes on after an error."""
    texts = {"o": STEPS + OWN, "l": STEPS + LOST, "n": STEPS, "s": OWN + STEPS}
    for rank, end in enumerate(ends):
        (folder / f"fit-{rank}.log").write_text(f"RANK={rank} started\n" + texts[end])


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (
            "lllo",
            "illegal memory access was encountered (fit-3.log#line=5), and the log of rank 3",
        ),
        ("olll", "and the log of rank 0"),
        ("llln", "exit code, host and kernel log of rank 3"),
        ("lloo", None),
        ("lo", None),
        ("llls", None),
    ],
)
def test_the_one_log_that_ends_by_an_error_of_its_own(ends: str, said: str | None, tmp_path: Path) -> None:
    write(tmp_path, ends)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert said in " ".join(verdict.leads) if said else not any("the error" in lead for lead in verdict.leads)


@pytest.mark.parametrize("text", [OWN, STEPS + OWN, OWN * 3, STEPS + "ValueError: retrying\n" + STEPS])
def test_one_log_alone_shows_nobody(text: str, tmp_path: Path) -> None:
    assert not named(pasted(tmp_path, text))
