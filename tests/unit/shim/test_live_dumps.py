"""Lines that `forensics doctor` prints so that a running rank can be asked for its calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forensics.shim.doctor import Health
from forensics.shim.live_dumps import live_dumps

PIPE = "export TORCH_NCCL_DEBUG_INFO_PIPE_FILE="
SERVER = "worker_main"


@pytest.mark.parametrize(
    ("torch", "has_nccl", "stated", "unstated"),
    [
        ("2.7.0+cu126", True, PIPE, SERVER),
        ("2.3.1", True, PIPE, SERVER),
        (None, True, PIPE, SERVER),
        ("2.2.0", True, "torch 2.3 is the first", PIPE),
        ("2.13.0+cpu", False, SERVER, PIPE),
        ("2.6.0", False, "is not known", PIPE),
        ("2.4.0", False, "torch 2.5 is the first", SERVER),
        (None, False, SERVER, PIPE),
    ],
)
def test_by_back_end_and_version(torch: str | None, has_nccl: bool, stated: str, unstated: str) -> None:
    check = live_dumps({}, torch, has_nccl)
    assert check.health is Health.WARN
    assert stated in check.advice and unstated not in check.advice


def test_what_is_switched_on_needs_no_advice() -> None:
    for environ, has_nccl in (
        ({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/fr_"}, True),
        ({"TORCH_WORKER_SERVER_SOCKET": "/tmp/w0.sock"}, True),
        ({"TORCH_WORKER_SERVER_SOCKET": "/tmp/w0.sock"}, False),
    ):
        check = live_dumps(environ, "2.13.0", has_nccl)
        assert (check.health, check.advice) == (Health.OK, "")


def test_the_pipe_does_nothing_for_gloo() -> None:
    assert live_dumps({"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/fr_"}, "2.13.0", False).health is Health.WARN


def test_the_lines_for_a_trainer_give_each_start_of_a_rank_a_socket_of_its_own() -> None:
    lines = [line.strip() for line in live_dumps({}, "2.13.0", False).advice.splitlines() if line.startswith("  ")]
    places: set[str] = set()
    for _ in range(2):
        scope: dict[str, object] = {"main": lambda: None}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RANK", "0")
            patch.delenv("TORCH_WORKER_SERVER_SOCKET", raising=False)
            exec("\n".join(line for line in lines if "worker_main" not in line), scope)
            path = Path(os.environ["TORCH_WORKER_SERVER_SOCKET"])
        path.parent.rmdir()
        places.add(str(path))
    assert len(places) == 2
