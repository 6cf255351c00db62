"""The devices of all ranks but one are inside communication; that one is in another kernel, which does not end."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Granularity, StageName
from forensics.rules.interface import Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.hardware.device_kernels import DeviceKernels
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.text.evidence_text import EvidenceText, ranks_text
from forensics.rules.reductions.text.seen import Seen


def _evaluate(
    kernels: DeviceKernels, stacks: StacksByRank, errors: GpuErrors, text: EvidenceText, thresholds: Thresholds
) -> Iterator[Finding]:
    """A rank whose device was found in several launches goes on, and is not named."""
    inside = tuple(sorted(rank for rank, found in kernels.items() if any(one.communicates for one in found)))
    apart = [rank for rank in kernels if rank not in inside]
    if len(apart) != 1 or len(kernels[apart[0]]) != 1 or len(inside) < thresholds["least_peers"]:
        return
    rank, launch = apart[0], kernels[apart[0]][0]
    activity = activity_of(stacks, rank)
    lasts = launch.seconds >= thresholds["least_seconds"]
    again = f" for {launch.seconds:.0f} s at least" if lasts else ""
    peers = kernels[inside[0]][0]
    evidence = (
        Evidence(f"the device of rank {rank} is inside {launch.name}{again}, which is no communication", launch.source),
        Evidence(f"those of {ranks_text(inside)} are inside communication, e.g. {peers.name}", peers.source),
    )
    yield errors.refined(
        Finding(
            ranks=(rank,),
            cause=Cause.COMPUTE_HANG,
            stage=text.stage_ref(rank, activity.stage if activity else StageName.UNKNOWN, activity, Component.COMPUTE),
            belief=Belief.DIRECT_RECORD if lasts else Belief.BEHIND_AND_BUSY,
            confidence=Confidence.LIKELY if lasts else Confidence.SUSPECT,
            evidence=(*evidence, *text.stack(rank), *text.process(rank)),
            granularity=Granularity.GPU,
            next_steps=(
                f"check the kernel of rank {rank} again: where its program counter moves in a small loop, it never ends",
                "a kernel that waits for memory of a peer (one-sided transfers of other libraries) leaves the same evidence",
            ),
        )
    )


def _clears(kernels: DeviceKernels, seen: Seen) -> str | None:
    together = bool(kernels) and all(any(one.communicates for one in found) for found in kernels.values())
    whole = together and seen.all_in(kernels)
    return f"the devices of all {len(kernels)} ranks are inside communication" if whole else None


RULE = Rule(
    code="FX148",
    name="kernel-apart",
    seed="Mycroft section 8, case three (a)",
    needs=(Need(DeviceKernels, "device_kernels", "cuda-gdb shows which kernel is on a device"),),
    concludes="A rank whose device is in a kernel that does not end while the devices of its peers are inside communication.",
    evaluate=_evaluate,
    clears=_clears,
    thresholds=(
        Threshold("least_peers", 2, "with a single peer either of the two kernels may be out of place"),
        Threshold(
            "least_seconds",
            60,
            "kernels of training last milliseconds: one launch that is found in two samples so far apart is stuck",
        ),
    ),
)
