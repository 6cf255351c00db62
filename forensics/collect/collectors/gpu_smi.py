"""`nvidia-smi -q -x` in a killable child: on a sick GPU it hangs, and that it hangs is evidence."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from forensics.bundle.layout import Status, node_path
from forensics.collect.collectors.command import find_program, run_program
from forensics.collect.processes import ProcFs, all_stats
from forensics.collect.record import Run
from forensics.collect.target import Context

ID = "gpu.smi"
TIMEOUT_S = 15.0


def stuck_before(procfs: ProcFs) -> int | None:
    """An nvidia-smi that sleeps in the kernel for longer than one is waited for: what cannot be killed must not pile up."""
    up = time.clock_gettime(time.CLOCK_BOOTTIME)
    for stat in all_stats(procfs).values():
        age = up - stat.start_ticks / os.sysconf("SC_CLK_TCK")
        if stat.comm == "nvidia-smi" and stat.state == "D" and age > TIMEOUT_S:
            return stat.pid
    return None


def collect_smi(context: Context, sample: int) -> Iterator[Run]:
    """State, clocks, errors and processes of all GPUs as XML."""
    program = find_program("nvidia-smi")
    if program is None:
        devices = Path("/proc/driver/nvidia").exists()
        reason = "nvidia-smi is not installed" + ("" if devices else ", and there is no NVIDIA driver")
        yield Run(ID, None, Status.NOT_FOUND, reason)
        return
    argv = (program, "-q", "-x")
    if stuck := stuck_before(context.procfs):
        reason = f"nvidia-smi (process {stuck}) hangs in the driver since before (state D): another one would too"
        yield Run(ID, None, Status.SKIPPED_BY_POLICY, reason, argv=argv)
        return
    result = run_program(argv, TIMEOUT_S, context.staging.root, context.settings.text_bytes)
    if result.code is None:
        reason = f"nvidia-smi gave no answer in {TIMEOUT_S:g} s: a GPU or its driver hangs"
        yield Run(ID, None, Status.TIMEOUT, reason, argv=argv)
        return
    said = (result.errors or result.output[:300].decode("utf-8", "replace")).strip().partition("\n")[0]
    reason_or_none = None if result.code == 0 else f"nvidia-smi ended with code {result.code}: {said}"
    if not result.output.lstrip().startswith(b"<?xml"):
        yield Run(ID, None, Status.UNSUPPORTED, reason_or_none or "nvidia-smi gave no XML", argv=argv)
        return
    written = context.staging.write(node_path(context.node, "gpu/nvidia-smi.xml"), result.output)
    status = Status.PARTIAL if reason_or_none or result.truncated else Status.OK
    yield Run(ID, None, status, reason_or_none, argv=argv, truncated=result.truncated).stored(written)
