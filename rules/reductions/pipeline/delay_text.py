"""What held up a long step, in words."""

from __future__ import annotations

from forensics.rules.reductions.pipeline.delay import Delay
from forensics.rules.reductions.text.evidence_text import ranks_text


def happened(delay: Delay) -> str:
    """What showed in the step."""
    who, call = ranks_text(delay.ranks), f"{delay.kind} {delay.sequence} of {delay.communicator}"
    if delay.is_transfer:
        return f"{who} were {delay.waited_ns / 1e6:.0f} ms longer in {call}, all of them, and none had waited before"
    if delay.by_ends:
        return f"the first call to end late for all of its members is {call}"
    if delay.shown_by is not None:
        waited = f"rank {delay.shown_by} waited {delay.waited_ns / 1e6:.0f} ms longer than usual in {call} for {who}"
        return f"{waited}, of which there is no record; nobody whose record is here was late before"
    if delay.is_spread:
        return f"the others waited {delay.waited_ns / 1e6:.0f} ms longer for {who}, bit by bit until {call}"
    waited = f"the others waited up to {delay.waited_ns / 1e6:.0f} ms longer than usual in {call}"
    if delay.before_step:
        return f"{waited} for {who}, whose host came late to the step itself"
    return f"{waited} for {who}, which had waited for nobody before in this step"


def advice(delay: Delay) -> str:
    """What to look at next."""
    if delay.is_transfer:
        return f"check errors and retries on the links between {ranks_text(delay.ranks)} at that time"
    if delay.before_step:
        return f"check what {ranks_text(delay.ranks)} did between the steps then: data, logging, garbage collection, its GPU"
    if delay.on_host:
        return f"check what the host of {ranks_text(delay.ranks)} did then: garbage collection, swapping, other processes"
    return f"check clocks, temperature and kernel log of the GPU of {ranks_text(delay.ranks)} at that time"
