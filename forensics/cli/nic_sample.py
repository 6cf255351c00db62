"""`forensics nic-sample`: record the counters of this host's NICs while a job runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.errors import ExitCode, ForensicsError

Output = Annotated[Path, typer.Option("--output", "-o", help="File to write; nothing is replaced without --force.")]
Interval = Annotated[float, typer.Option("--interval", min=0.01, help="Seconds between two reads.")]
Seconds = Annotated[float | None, typer.Option("--seconds", min=0.01, help="For how long. Default: until Ctrl-C.")]


def nic_sample(
    output: Output = Path("nic-series.jsonl"),
    interval: Interval = 1.0,
    seconds: Seconds = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    sysfs: Annotated[Path, typer.Option("--sysfs", help="Where sysfs is mounted.", hidden=True)] = Path("/sys"),
) -> None:
    """Record the counters of InfiniBand and RoCE ports of this host, again and again, with little cost.

    Only what changed is written. Counters tell how much a port moved and what went wrong on it, not between whom, and no gap
    shorter than the interval: which NIC slows a collective down is shown by NIC epochs. Ends on Ctrl-C or SIGTERM.

    Example: forensics nic-sample -o /tmp/$(hostname).jsonl --interval 0.1 & then forensics diagnose /tmp/*.jsonl bundle.tar
    """
    import platform

    from forensics.collect.interrupts import Interrupts
    from forensics.collect.nic_series import Sampling, record

    root = sysfs / "class/infiniband"
    if not root.is_dir() or not any(root.iterdir()):
        raise ForensicsError(f"no InfiniBand or RoCE device ({root} is missing or empty)", ExitCode.USAGE)
    try:
        with Interrupts() as interrupts, output.open("w" if force else "x", encoding="utf-8") as target:
            reads = record(target, root, platform.node(), Sampling(interval, seconds), interrupts)
    except FileExistsError:
        raise ForensicsError(f"{output} exists: --force replaces it", ExitCode.USAGE) from None
    except OSError as error:
        raise ForensicsError(f"cannot write {output}: {error.strerror}", ExitCode.USAGE) from error
    typer.echo(f"wrote {reads} reads to {output}")
