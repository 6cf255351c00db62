"""Flight Recorder of a living rank, asked from its worker server: `POST /handler/fr_trace_json`.

Only the configured socket is asked: a server that expects another protocol may end at the first strange word, as one of
multiprocessing does. `--ask-sockets` asks what else the rank listens on, which finds the path that a trainer sets itself.

`onlyactive` is not asked for: completed entries tell how far a rank came, and gloo never completes one. CUDA builds have a
second recorder of their own, `dump_nccl_trace_json`, which is taken where it is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from forensics.bundle.layout import Status, rank_path
from forensics.collect.collectors.proc_tasks import gone
from forensics.collect.collectors.worker_server import NotAWorkerServer, SocketPlace, answer, handlers, socket_places
from forensics.collect.permissions import why_denied
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target

ID = "fr.live"
VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_LISTED = 4
_RECORDERS = (("fr_trace_json", "fr/{}.json"), ("dump_nccl_trace_json", "fr/{}.nccl.json"))


def collect_live(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """Both recorders of one rank, through the first of its sockets that is a worker server."""
    if target.pid is None or target.state == "zombie":
        yield _without(target, sample, Status.NOT_FOUND, gone(target))
        return
    try:
        places = socket_places(context.procfs, target.pid, target.environ.get(VARIABLE))
    except PermissionError:
        reason = why_denied(context.procfs, target.pid, "see the sockets")
        yield _without(target, sample, Status.PERMISSION, f"{VARIABLE} is not set, and {reason}")
        return
    unasked = [place for place in places if not place.configured and not context.settings.ask_sockets]
    places = [place for place in places if place not in unasked]
    if not places:
        reason = f"no worker server: {VARIABLE} is not set and the process listens on {_sockets(unasked)}"
        yield _without(target, sample, Status.NOT_CONFIGURED, reason)
        return
    failures: list[tuple[Status, str]] = []
    for place in places:
        try:
            names = handlers(place.path, target.pid, context.settings.answer_s)
        except NotAWorkerServer as error:
            failures.append((Status.NOT_CONFIGURED, f"{place.name}: {error}"))
        except OSError as error:
            failures.append(_unanswered(context, target, place, error))
        else:
            yield from _ask(context, target, sample, place, names)
            return
    # What failed on a socket that should have answered says more than what is no worker server at all.
    status = min((status for status, _ in failures), key=lambda one: one is Status.NOT_CONFIGURED)
    yield _without(target, sample, status, "; ".join(reason for _, reason in failures))


def _sockets(unasked: list[SocketPlace]) -> str:
    """Sockets that were left alone: what listens there may not stand a request of another protocol."""
    names = ", ".join(place.name for place in unasked[:_LISTED])
    return f"{names}, which only --ask-sockets asks" if names else "no UNIX socket"


def _ask(context: Context, target: Target, sample: int, place: SocketPlace, names: list[str]) -> Iterator[Run]:
    asked = [(handler, name.format(sample)) for handler, name in _RECORDERS if handler in names]
    if not asked:
        listed = ", ".join(names) or "nothing"
        yield _without(target, sample, Status.UNSUPPORTED, f"the worker server offers no Flight Recorder, only {listed}")
    for handler, name in asked:
        try:
            yield _store(context, target, sample, place, handler, name)
        except NotAWorkerServer as error:
            yield _without(target, sample, Status.PARTIAL, f"{handler} of {place.name}: {error}")
        except OSError as error:
            yield _without(target, sample, *_unanswered(context, target, place, error))


def _store(context: Context, target: Target, sample: int, place: SocketPlace, handler: str, name: str) -> Run:
    url = f"/handler/{handler}"
    argv = ("POST", place.name, url)
    with answer(place.path, target.pid or 0, "POST", url, context.settings.answer_s * 2) as (code, chunks):
        if code != 200:
            said = b"".join(islice(chunks, 1))[:200].decode("utf-8", "replace").strip()
            reason = f"{handler} answered HTTP {code}: {said}"
            return Run(ID, target.rank, Status.UNSUPPORTED, reason, pid=target.pid, sample=sample, argv=argv)
        path = rank_path(target.rank, name)
        written = context.staging.write_stream(path, chunks, context.settings.recorder_bytes)
    cut = f"cut at {context.settings.recorder_bytes} bytes" if written.truncated else None
    status = Status.PARTIAL if cut else Status.OK
    return Run(ID, target.rank, status, cut, pid=target.pid, sample=sample, argv=argv).stored(written)


def _unanswered(context: Context, target: Target, place: SocketPlace, error: OSError) -> tuple[Status, str]:
    """Why a socket gave no answer, with the state of the process where that explains it."""
    if isinstance(error, ConnectionRefusedError):
        return Status.NOT_FOUND, f"nobody listens on {place.name} any more"
    status, reason = failure(error, f"worker server {place.name}")
    if status is not Status.TIMEOUT or target.pid is None:
        return status, reason
    try:
        state = context.procfs.stat(target.pid).state
    except (OSError, ValueError, IndexError):
        return Status.NOT_FOUND, gone(target)
    stopped = "; the process is stopped (state T)" if state in "Tt" else f"; the process is in state {state}"
    return status, f"worker server {place.name} gave no answer in {context.settings.answer_s:g} s{stopped}"


def _without(target: Target, sample: int, status: Status, reason: str) -> Run:
    return Run(ID, target.rank, status, reason, pid=target.pid, sample=sample)
