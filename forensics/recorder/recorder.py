"""What a trainer calls: steps, ordered stages in them, side channels, and data waits that belong to the consuming step."""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar

from forensics.recorder import layout
from forensics.recorder.contexts import DeviceTimeContext, PrefetchContext, ProbeContext, StageContext, StepContext
from forensics.recorder.writer import MAX_WAITING, Counts, Origin, Span, Writer

T = TypeVar("T")
FOLDER_VARIABLE = "FORENSICS_STAGES"
"""Environment variable that names the folder when the trainer does not; without either nothing is recorded."""
DEFAULT_SLOTS = 2048
DEFAULT_SPANS = 64
DATA = "data"
ARRIVED = "arrived"
WATCHED = 8
_CLOSE_LIMIT_S = 2.0
_clock = time.monotonic_ns


class Recorder:
    """Records the stages of this rank's steps into one bounded file; cheap enough to leave on, and unable to fail.

    `folder` gets one file a rank. `role` names what this rank is in the job when ranks do different work (for example
    `pp1`): only ranks of one role are compared. `device_share` is the share of steps whose `device_time` regions are
    timed by CUDA events. `slots` newest steps are kept, with up to `spans` stages each.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        role: str | None = None,
        device_share: float = 0.05,
        slots: int = DEFAULT_SLOTS,
        spans: int = DEFAULT_SPANS,
    ) -> None:
        self._writer: Writer | None = None
        self._counts = Counts()
        self._names: dict[tuple[str, int], int] = {}
        self._stages: dict[str, StageContext] = {}
        self._spans: list[Span] | None = None
        self._ahead: list[tuple[int, int]] = []
        self._moved_ns = 0
        self._is_open = False
        self._depth = 0
        self._owner = get_ident()
        self._next_step = 0
        self._arrived = -1
        self._gradient_ns = 0
        self._device_every = round(1 / device_share) if device_share > 0 else 0
        self._step = StepContext(self)
        try:
            self._start(folder, _Settings(rank, world_size, role, slots, spans))
        except Exception as error:
            self.error: str | None = f"{type(error).__name__}: {error}"

    def _start(self, folder: str | os.PathLike[str] | None, settings: _Settings) -> None:
        self.error = None
        where = folder or os.environ.get(FOLDER_VARIABLE)
        if not where:
            self.error = f"no folder was given, and {FOLDER_VARIABLE} is not set"
            return
        origin = settings.origin()
        path = Path(where) / f"rank_{max(origin.rank, 0)}.stages"
        self._writer = Writer(path, origin, self._counts, settings.slots, settings.spans)
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._leave)

    def step(self, number: int | None = None) -> StepContext:
        """One optimizer step, as a context; numbered from 0 unless the trainer says which."""
        self._step.number = number
        return self._step

    def stage(self, name: str) -> StageContext:
        """One ordered stage of the step, as a context; a name used again in a step is its next substep."""
        found = self._stages.get(name)
        if found is None:
            found = self._stages[name] = StageContext(self, self._name(name, 0))
        return found

    def probe(self, name: str) -> ProbeContext:
        """A measurement inside a stage, kept beside the accounting and never in it."""
        return ProbeContext(self, self._name(name, layout.SIDE_CHANNEL))

    def device_time(self, name: str = "device") -> DeviceTimeContext:
        """Time the device work of this region in a sample of the steps; nothing without torch and CUDA."""
        return DeviceTimeContext(self, self._name(name, layout.SIDE_CHANNEL))

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches; the wait for each belongs to the step that follows."""
        iterator = iter(loader)
        while True:
            begin = _clock()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._wait_ahead(begin, _clock())
            yield batch

    def prefetch(self) -> PrefetchContext:
        """A wait for the batch of the next step, wherever it happens; it is taken out of this one."""
        return PrefetchContext(self)

    def watch(self, model: Any) -> None:
        """Note when the last gradients of a torch model are there: from then on its backward pass only waits for other ranks.

        A hook on a few parameters of the first layers, whose gradients come last; nothing else of the model is touched.
        """
        try:
            parameters = [each for each in model.parameters() if each.requires_grad][:WATCHED]
            for parameter in parameters:
                parameter.register_hook(self._gradient)
            self._arrived = self._name(ARRIVED, layout.SIDE_CHANNEL) if parameters else -1
        except Exception as error:
            self.error = self.error or f"{type(error).__name__}: {error}"

    def _gradient(self, _: Any) -> None:
        """Runs in the thread of the backward pass."""
        self._gradient_ns = _clock()

    def close(self) -> None:
        """Write the rest, waiting two seconds at most; recording ends."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close(_CLOSE_LIMIT_S)
            self.error = self.error or writer.error

    def _leave(self) -> None:
        """A forked child has no writing thread and is not the rank."""
        self._writer = None

    def _name(self, name: str, flags: int) -> int:
        found = self._names.get((name, flags))
        if found is None:
            found = len(self._counts.names)
            if found >= layout.NAMES:
                return layout.NAMES - 1
            self._counts.names.append((name.encode(errors="replace")[:60].decode(errors="ignore"), flags))
            self._names[name, flags] = found
        return found

    def _wait_ahead(self, begin: int, end: int) -> None:
        if len(self._ahead) < 64:
            self._ahead.append((begin, end))
        if self._spans is not None:
            self._moved_ns += end - begin

    def _begin_step(self) -> int:
        """Begin of the step: where the wait for its batch began, when nothing lies between."""
        self._owner = get_ident()
        self._is_open, self._depth = False, 0
        self._moved_ns = 0
        self._spans = []
        now = _clock()
        if self._ahead:
            waited = sum(end - begin for begin, end in self._ahead)
            self._spans.append((self._name(DATA, 0), now - waited, now, None))
            self._ahead.clear()
            now -= waited
        return now

    def _end_step(self, number: int | None, begin: int, raised: bool) -> None:
        spans, self._spans = self._spans, None
        if spans and self._arrived >= 0 and self._gradient_ns > begin:
            inside = next((span for span in spans if span[1] <= self._gradient_ns <= span[2]), None)
            if inside is not None:
                spans.append((self._arrived, inside[1], self._gradient_ns, None))
        step = self._next_step if number is None else number
        self._next_step = step + 1
        writer = self._writer
        if writer is None or spans is None:
            return
        if len(writer.waiting) >= MAX_WAITING:
            self._counts.dropped += 1
            return
        wall = _clock() - begin - self._moved_ns
        writer.waiting.append((step, begin, wall, spans, layout.STEP_RAISED if raised else 0))

    def _samples_device(self) -> bool:
        return bool(self._device_every) and self._next_step % self._device_every == 0


class _Settings:
    """What the trainer or the launcher says of this rank."""

    def __init__(self, rank: int | None, world_size: int | None, role: str | None, slots: int, spans: int) -> None:
        self._rank, self._world, self._role = rank, world_size, role
        self.slots, self.spans = slots, spans

    def origin(self) -> Origin:
        """Rank and world from the arguments, else from the launcher's environment."""
        texts = {"host": socket.gethostname()} | ({"role": self._role[:200]} if self._role else {})
        rank, world = _known(self._rank, "RANK", "SLURM_PROCID"), _known(self._world, "WORLD_SIZE", "SLURM_NTASKS")
        return Origin(rank, world, _known(None, "LOCAL_RANK", "SLURM_LOCALID"), texts)


def _known(value: int | None, *variables: str) -> int:
    texts = (os.environ.get(name, "") for name in variables)
    return value if value is not None else next((int(text) for text in texts if text.isdecimal()), -1)
