"""Keep the books of a collection: every run as it ends, every redaction, and the manifest made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import forensics
from forensics.bundle.layout import BUNDLE, REDACTIONS, SCHEMA, Status, node_path
from forensics.collect.absence import MissingRank
from forensics.collect.collectors import clock
from forensics.collect.discovery import Discovery
from forensics.collect.plan import RANK_COLLECTORS
from forensics.collect.record import Run, now_ns, summary_status
from forensics.collect.target import Context
from forensics.native import ClockReading


class Journal:
    """The runs of one collection on one host, written down as they come."""

    def __init__(self, context: Context, begin_ns: int) -> None:
        self.context = context
        self.runs: list[Run] = []
        self.found = Discovery()
        self.left_out = Discovery()
        self.missing: tuple[MissingRank, ...] = ()
        self.interrupted = True  # until the books are closed: what a killed collection leaves must not look whole
        self._begin_ns = begin_ns
        self._end_ns = begin_ns
        self._redactions: Counter[tuple[str, str]] = Counter()

    def identify(self, found: Discovery, missing: tuple[MissingRank, ...], left_out: Discovery) -> None:
        """Whom the collection is about; `left_out` are ranks that the user did not ask for."""
        self.found, self.missing, self.left_out = found, missing, left_out

    def record(self, run: Run) -> None:
        """Write down one run."""
        self.runs.append(run)
        path = node_path(self.context.node, "collectors.jsonl")
        counts: Counter[str] = Counter()
        self.context.staging.append_line(path, run.document(counts))
        self.redacted(path, counts)
        if run.path:
            self.redacted(run.path, run.redactions)

    def redacted(self, path: str, counts: Mapping[str, int]) -> None:
        """Write down what was taken out of a member."""
        for rule, count in counts.items():
            self._redactions[rule, path] += count

    def record_clocks(self, clocks: Sequence[ClockReading]) -> None:
        """The readings of the clocks at the begin and at the end."""
        path = node_path(self.context.node, "node.json")
        for sample, one in enumerate(clocks):
            moment = one.realtime_ns
            self.record(Run(clock.ID, None, Status.OK, sample=sample, begin_ns=moment, end_ns=moment, path=path))

    def close(self, interrupted: bool) -> None:
        """Write the final manifest and the list of redactions."""
        self.interrupted = interrupted
        rows = [{"rule": rule, "path": path, "count": count} for (rule, path), count in sorted(self._redactions.items())]
        self.context.staging.write_json(REDACTIONS, rows)
        self.write_manifest()

    def write_manifest(self) -> None:
        """Write bundle.json as it is known now."""
        self._end_ns = now_ns()
        self.context.staging.write_json(BUNDLE, self._document())

    def rank_status(self) -> dict[int, dict[str, Status]]:
        """One status for each rank and rank collector; ranks that were not asked for are skipped by policy."""
        table: dict[int, dict[str, list[Run]]] = {}
        for run in self.runs:
            if run.rank is not None:
                table.setdefault(run.rank, {}).setdefault(run.id, []).append(run)
        status = {rank: {key: summary_status(runs) for key, runs in sorted(row.items())} for rank, row in table.items()}
        for one in self.left_out.ranks:
            status[one.rank] = {collector.id: Status.SKIPPED_BY_POLICY for collector in RANK_COLLECTORS}
        return dict(sorted(status.items()))

    def node_status(self) -> dict[str, Status]:
        """One status for each host collector."""
        table: dict[str, list[Run]] = {}
        for run in self.runs:
            if run.rank is None:
                table.setdefault(run.id, []).append(run)
        return {key: summary_status(runs) for key, runs in sorted(table.items())}

    def _document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "tool": f"forensics {forensics.__version__}",
            "begin_ns": self._begin_ns,
            "end_ns": self._end_ns,
            "interrupted": self.interrupted,
            "job_id": self.found.job.name if self.found.job else None,
            "world_size": self.found.world_size,
            "nodes": [self.context.node],
            "ranks": self._ranks(),
            "status": self.rank_status(),
            "node_status": {self.context.node: self.node_status()},
            "warnings": list(self.found.warnings),
        }

    def _ranks(self) -> dict[int, dict[str, Any]]:
        node = self.context.node
        living = (*self.found.ranks, *self.left_out.ranks)
        ranks: dict[int, dict[str, Any]] = {
            one.rank: {"node": node, "pid": one.process.pid, "state": "alive", "reason": None} for one in living
        }
        for one in self.missing:
            here = None if one.state == "unknown" else node
            ranks[one.rank] = {"node": here, "pid": one.pid, "state": one.state, "reason": one.method}
        return dict(sorted(ranks.items()))
