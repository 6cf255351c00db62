"""What a platform team adds to every trainer: two ways to ask a running rank for its Flight Recorder.

The worker server answers on a C++ thread. The pipe copies the behaviour of the NCCL monitor thread, which gloo lacks:
any byte written to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe` makes the rank write `<TORCH_FR_DUMP_TEMP_FILE><rank>`.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from torch._C._distributed_c10d import _dump_fr_trace, _WorkerServer


def answer_dump_requests() -> object:
    """Answer as the environment asks for; the caller keeps the result alive."""
    if pipe := os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"):
        path = f"{pipe}{os.environ['RANK']}.pipe"
        os.mkfifo(path)
        threading.Thread(target=_answer_pipe, args=(path,), name="fr-monitor", daemon=True).start()
    socket_path = os.environ.get("TORCH_WORKER_SERVER_SOCKET")
    return _WorkerServer(socket_path) if socket_path else None


def _answer_pipe(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    target = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"])
    while True:
        if os.read(descriptor, 64):
            target.write_bytes(_dump_fr_trace(True, True, False))
        time.sleep(0.3)
