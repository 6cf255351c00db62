"""Why this process may not look into another one, in words that say what to change."""

from __future__ import annotations

from forensics.collect.processes import ProcFs

_PTRACE_CAPABILITY = 1 << 19  # CAP_SYS_PTRACE


def why_denied(procfs: ProcFs, pid: int, act: str) -> str:
    """What of user, capability, container and Yama stands in the way of `act` on a process, as far as it can be read."""
    hints: list[str] = []
    try:
        own, other = procfs.status(int((procfs.root / "self").readlink().name)), procfs.status(pid)
        if own["Uid"].split()[1] not in ("0", other["Uid"].split()[0]):
            hints.append(f"it belongs to uid {other['Uid'].split()[0]}: run as that user or as root")
        elif not int(own["CapEff"], 16) & _PTRACE_CAPABILITY:
            hints.append("this process lacks CAP_SYS_PTRACE: docker run --cap-add SYS_PTRACE, or collect on the host as root")
    except (OSError, KeyError, ValueError, IndexError):
        hints.append("run as root on the host")
    scope = ptrace_scope(procfs)
    if scope:
        hints.append(f"kernel.yama.ptrace_scope is {scope}")
    return f"not allowed to {act} of process {pid}: {'; '.join(hints) or 'refused by the kernel or a security module'}"


def ptrace_scope(procfs: ProcFs) -> int | None:
    """Yama's setting, None where Yama is not built in."""
    try:
        return int((procfs.root / "sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return None
