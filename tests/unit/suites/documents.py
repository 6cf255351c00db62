"""Verdicts and truths as they are scored, with what the tests do not look at filled in."""

from __future__ import annotations

from typing import Any


def suspect(*ranks: int, stage: str = "forward", cause: str = "host_stall", **more: Any) -> dict[str, Any]:
    component = more.pop("component", "host")
    given = {"microbatch": more.pop("microbatch", None), "name": stage, "component": component, "operation": None}
    return {
        "fault": 1, "ranks": list(ranks), "members": "each", "granularity": "rank", "cause": cause, "confidence": "likely",
        "rules": ["FX1"], "mechanism": None, "stage": given, **more,
    }  # fmt: skip


def verdict(outcome: str, *suspects: dict[str, Any]) -> dict[str, Any]:
    return {"outcome": outcome, "summary": outcome, "suspects": list(suspects)}


def fault(
    *ranks: int, group: tuple[int, ...] = (), stage: str | None = "forward", tells: tuple[str, ...] = (), **more: Any
) -> dict[str, Any]:
    """`tells` is what the evidence tells beside the ranks: `microbatch`, `mechanism`."""
    members: dict[str, Any] = (
        {"members": "one_of", "ranks": list(group)} if group else {"members": "each", "ranks": list(ranks)}
    )
    return {
        "kind": "host-hang", "level": None, "ranks": list(ranks), "hosts": [], "anomaly": "fail_stop", "cause": "host_stall",
        "accepted_causes": ["host_stall"], "mechanism": None,
        "determinable": {**members, **dict.fromkeys(tells, True)},
        "stage": {"name": stage, "microbatch": 3}, **more,
    }  # fmt: skip


def truth(outcome: str, *faults: dict[str, Any]) -> dict[str, Any]:
    return {"outcome": outcome, "degraded": outcome != "healthy", "faults": list(faults)}
