"""Files as `forensics.recorder` leaves them, of synchronous jobs that are made up: no trainer, no clock, no waiting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forensics.recorder import layout

MS = 1_000_000
EPOCH = 1_700_000_000 * 1000 * MS
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Times in ns: `durations[step, stage, rank]` as the host saw them, `begins[step, rank]`, `walls[step, rank]`."""

    stages: tuple[str, ...]
    durations: Floats
    begins: Floats
    walls: Floats

    @property
    def ranks(self) -> int:
        """Ranks of the job."""
        return int(self.durations.shape[2])


def synchronous(stages: Sequence[str], work_ms: Floats, *, seed: int = 0, meeting: str = "backward") -> Recording:
    """A job whose ranks do `work_ms[step, stage, rank]`, two per cent more or less, and leave `meeting` together."""
    chance = np.random.default_rng(seed)
    steps, _, ranks = work_ms.shape
    work = work_ms * MS * (1 + 0.02 * chance.standard_normal(work_ms.shape)).clip(0.8)
    rest = MS * (1 + chance.random((steps, ranks)))
    durations, begins = np.zeros_like(work), np.zeros((steps, ranks))
    now = np.zeros(ranks)
    for step in range(steps):
        begins[step] = now
        for place, stage in enumerate(stages):
            left = now + work[step, place]
            if stage == meeting:
                left = left.max() + 0.2 * MS * chance.random(ranks)
            durations[step, place], now = left - now, left
        now = now + rest[step]
    return Recording(tuple(stages), durations, begins, durations.sum(axis=1) + rest)


def write(
    folder: Path,
    run: Recording,
    *,
    hosts: Sequence[str] = ("node-1",),
    device: tuple[str, Floats] | None = None,
    every: int = 20,
) -> Path:
    """One file a rank, in equal blocks over `hosts`; `device`: a stage and its device times (ns, `[step, rank]`)."""
    folder.mkdir()
    names = [*((stage, 0) for stage in run.stages), *([("device", layout.SIDE_CHANNEL)] if device else [])]
    for rank in range(run.ranks):
        text = json.dumps({"host": hosts[rank * len(hosts) // run.ranks]}).encode()
        steps = [_step(run, step, rank, device if device and step % every == 0 else None) for step in range(len(run.walls))]
        size = layout.slot_bytes(len(names))
        head = layout.HEADER.pack(
            *(
                layout.MAGIC,
                layout.VERSION,
                0,
                layout.NAMES_OFFSET,
                layout.SLOTS_OFFSET,
                size,
                len(steps),
                rank,
                run.ranks,
                rank,
            ),
            *(1000 + rank, len(text), EPOCH, 0, len(steps), 0, 0, 0, 0, len(names)),
        )
        table = b"".join(layout.NAME.pack(flags, len(name), name.encode()) for name, flags in names)
        block = head.ljust(layout.HEADER_BYTES, b"\0") + text.ljust(layout.TEXT_BYTES, b"\0") + table
        content = block.ljust(layout.SLOTS_OFFSET, b"\0") + b"".join(step.ljust(size - 8, b"\0") + step[:8] for step in steps)
        (folder / f"rank_{rank}.stages").write_bytes(content)
    return folder


def _step(run: Recording, step: int, rank: int, device: tuple[str, Floats] | None) -> bytes:
    """One slot without its tail."""
    begin, spans, at = round(run.begins[step, rank]), [], 0
    for place, stage in enumerate(run.stages):
        lasted = round(run.durations[step, place, rank])
        spans.append((place, 0, 0, at, lasted, -1))
        if device and device[0] == stage:
            known = layout.SPAN_DEVICE_ASKED | layout.SPAN_DEVICE_READY
            spans.append((len(run.stages), 0, known, at, lasted, round(device[1][step, rank])))
        at += lasted
    head = layout.STEP.pack(step + 1, step, begin, round(run.walls[step, rank]), -1, len(spans), 0, 1)
    return head + b"".join(layout.SPAN.pack(*span) for span in spans)
