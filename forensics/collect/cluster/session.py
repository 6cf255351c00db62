"""A collection from many hosts from beginning to end, and the merging of bundles that were collected by hand."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from forensics.bundle.layout import Status
from forensics.collect.cluster.exchange import Delivery
from forensics.collect.cluster.gathering import Pace, gather
from forensics.collect.cluster.launchers import Target
from forensics.collect.interrupts import Interrupts
from forensics.collect.merging import Merger, open_host_bundle
from forensics.collect.session import Pack, pack_directory
from forensics.collect.staging import staging_beside
from forensics.collect.whole_job import record_delivery, write_manifest
from forensics.errors import ExitCode, ForensicsError

Heard = Callable[[Delivery, int, int], None]
"""Stated each delivery, the number of those that came and of those that are to come."""


@dataclass(frozen=True, slots=True)
class WholeJob:
    """A bundle of many hosts that was written: its size in bytes, how each host went, what a person should know."""

    output: Path
    size: int
    deliveries: tuple[Delivery, ...]
    offsets: Mapping[str, tuple[str, int, int]]
    ranks: Mapping[int, str]
    world_size: int | None
    warnings: tuple[str, ...]
    interrupted: bool

    def exit_code(self, strict: bool) -> int:
        """The exit code of the command (docs/collect.md)."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if not any(state in ("alive", "zombie") for state in self.ranks.values()):
            return ExitCode.NOTHING_COLLECTED
        is_whole = all(one.status is Status.OK for one in self.deliveries) and len(self.ranks) >= (self.world_size or 0)
        is_whole = is_whole and all(state == "alive" for state in self.ranks.values())
        return ExitCode.PARTIAL if strict and not is_whole else ExitCode.ANALYSED


@dataclass(slots=True)
class _Job:
    """What came so far."""

    merger: Merger
    begin_ns: int
    deliveries: list[Delivery] = field(default_factory=list)
    offsets: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def take(self, delivery: Delivery) -> None:
        """Merge what a host delivered and write the manifest anew: what is killed here can be read as it is."""
        nodes: tuple[str, ...] = ()
        if delivery.bundle is not None:
            try:
                nodes = self.merger.add(open_host_bundle(delivery.bundle, delivery.name))
            except ForensicsError as error:
                words = "; ".join(filter(None, (delivery.reason, error.message)))
                delivery = Delivery(delivery.name, Status.PARTIAL, words, delivery.begin_ns, delivery.end_ns)
        self.deliveries.append(delivery)
        record_delivery(self.merger, delivery, nodes)
        if delivery.offset is not None:
            for node in nodes:
                self.offsets[node] = (os.uname().nodename, delivery.offset.offset_ns, delivery.offset.bound_ns)
        self.write(True)

    def write(self, stopped: bool) -> None:
        write_manifest(self.merger, self.begin_ns, time.time_ns(), self.offsets, stopped)


def collect_job(
    targets: Sequence[Target],
    output: Path,
    pace: Pace,
    pack: Pack = pack_directory,
    force: bool = False,
    heard: Heard | None = None,
) -> WholeJob:
    """Collect from all targets into one bundle. Raises ForensicsError when there is nowhere to write it."""
    staging = staging_beside(output, force)
    spool = staging.root.with_name(f"{staging.root.name}.spool")
    job = _Job(Merger(staging), time.time_ns())

    def take(delivery: Delivery) -> None:
        job.take(delivery)
        if heard is not None:
            heard(job.deliveries[-1], len(job.deliveries), len(targets))

    try:
        spool.mkdir(mode=0o700)
        with Interrupts() as interrupts:
            gather(targets, spool, pace, interrupts, take)
            stopped = interrupts.requested
        return _finished(job, output, pack, force, stopped)
    except OSError as error:
        words = f"cannot write {staging.root}: {error.strerror}; what was collected is there"
        raise ForensicsError(words, ExitCode.PARTIAL) from error
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def merge_bundles(paths: Sequence[Path], output: Path, pack: Pack = pack_directory, force: bool = False) -> WholeJob:
    """Merge bundles of single hosts into one. Raises ForensicsError for what is no bundle, or nowhere to write."""
    labels = {path.name.partition(".tar")[0] or path.name: path for path in paths}
    if len(labels) != len(paths):
        labels = {str(path): path for path in paths}
    bundles = [open_host_bundle(path, label) for label, path in sorted(labels.items())]
    job = _Job(Merger(staging_beside(output, force)), time.time_ns())
    try:
        for bundle in bundles:
            job.merger.add(bundle)
        return _finished(job, output, pack, force, False)
    except OSError as error:
        raise ForensicsError(f"cannot write {output}: {error.strerror}", ExitCode.PARTIAL) from error


def _finished(job: _Job, output: Path, pack: Pack, force: bool, stopped: bool) -> WholeJob:
    """Pack what was merged; the staging directory goes only when the bundle is complete."""
    job.merger.close()
    job.write(stopped)
    staging, claims = job.merger.staging, job.merger.claims
    size = pack(staging.root, output, force, None)
    staging.remove()
    return WholeJob(
        output=output,
        size=size,
        deliveries=tuple(sorted(job.deliveries, key=lambda one: one.name)),
        offsets=dict(sorted(job.offsets.items())),
        ranks={rank: str(facts.get("state")) for rank, (_, facts) in claims.entries().items()},
        world_size=claims.job.world_size if claims.job else None,
        warnings=tuple(dict.fromkeys((*claims.conflicts(), *job.merger.warnings))),
        interrupted=stopped,
    )
