"""How the Flight Recorder of a running rank is reached, by the back end of the job and its version of torch.

Upstream: pytorch/pytorch #115770 (the pipe, torch 2.3), #126601 (the worker server, 2.4), #129712 (its JSON, 2.5). gloo was
seen to record its calls in torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from forensics.collect.collectors.fr_live import VARIABLE as SERVER
from forensics.collect.collectors.fr_pipe import VARIABLES as PIPES
from forensics.shim.doctor import Check, Health, find_nccl

PIPE_SINCE, SERVER_SINCE, GLOO_SINCE = (2, 3), (2, 5), (2, 13)
NAME = "Flight Recorder, live"
_NUMBER = re.compile(r"(\d+)\.(\d+)")
_PIPE = "export TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_ TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_FR_BUFFER_SIZE=20000"
_SERVER = f"""\
in the trainer, before main() runs:
  import os, tempfile
  from torch.distributed.elastic.control_plane import worker_main
  os.environ["{SERVER}"] = tempfile.mkdtemp() + "/worker.sock"
  main = worker_main()(main)
then: forensics collect --ask-sockets"""


def host_live_dumps(environ: Mapping[str, str]) -> Iterator[Check]:
    """The same of a job that would be started with this Python and this environment; nothing without torch beside it."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return
    yield live_dumps(environ, torch, bool(find_nccl()))


def live_dumps(environ: Mapping[str, str], torch: str | None, has_nccl: bool) -> Check:
    """Whether a living rank can be asked for its calls, and else the lines that make it so."""
    backend = "NCCL" if has_nccl else "gloo"
    what = f"torch {torch or 'of unknown version'} with {backend}"
    match = _NUMBER.match(torch or "")
    number = (int(match[1]), int(match[2])) if match else None
    if environ.get(SERVER):
        return Check(NAME, Health.OK, f"{what}: by the worker server at {environ[SERVER]}")
    if has_nccl and (pipe := next((environ[name] for name in PIPES if environ.get(name)), None)):
        return Check(NAME, Health.OK, f"{what}: by the pipe {pipe}<rank>.pipe, which NCCL's monitor thread reads")
    nothing = f"{what}: a running rank cannot be asked; dumps are there after a timeout of the watchdog only"
    if not has_nccl:
        nothing = f"{what}: a running rank cannot be asked, and gloo writes no dump on a timeout"
    return Check(NAME, Health.WARN, nothing, _advice(number, has_nccl))


def _advice(number: tuple[int, int] | None, has_nccl: bool) -> str:
    if has_nccl:
        if number is None or number >= PIPE_SINCE:
            return f"{_PIPE}\n(forensics collect asks through it; calls of gloo: by a worker server, docs/collect.md)"
        return "torch 2.3 is the first with a pipe: stacks and logs show it without dumps"
    if number is None or number >= GLOO_SINCE:
        return _SERVER
    if number >= SERVER_SINCE:
        return f"{_SERVER}\n(whether gloo of this torch records its calls is not known; 2.13 does)"
    return "torch 2.5 is the first that can be asked, 2.13 the first known to record calls of gloo: use stacks and logs"
