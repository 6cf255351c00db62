"""Logs of ranks on paper, in the words of torch's NCCL watchdog, of NCCL and of torchrun (docs/formats/training-log.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

DEFAULT = "0(default_pg)"
COMM_ID = "0x9f2b64c1a07d3e58"
WORLD = 8


class RankLogs:
    """One log a rank; each method adds lines to the log of one rank."""

    def __init__(self) -> None:
        self.lines: dict[int, list[str]] = defaultdict(list)

    def _torch(self, rank: int, line: int, text: str) -> None:
        self.lines[rank].append(f"[rank{rank}]:[E321 02:07:08.465224069 ProcessGroupNCCL.cpp:{line}] {text}")

    def timed_out(
        self,
        rank: int,
        sequence: int,
        enqueued: int,
        group: str = DEFAULT,
        *,
        operation: str = "ALLREDUCE",
        within: int | None = None,
        group_id: int = 0,
    ) -> None:
        """The watchdog of a rank gives up on `sequence`, after `enqueued` calls; everything before it is complete."""
        place = rank if within is None else within
        work = f"SeqNum={sequence}, OpType={operation}, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000"
        said = f"Watchdog caught collective operation timeout: WorkNCCL({work}) ran for 600060 milliseconds before timing out."
        self._torch(rank, 683, f"[Rank {place}] {said}")
        status = f"last enqueued work: {enqueued}, last completed work: {sequence - 1}"
        self._torch(
            rank,
            2241,
            f"[PG ID {group_id} PG GUID {group} Rank {place}]  failure detected by watchdog at work sequence id: {sequence} "
            f"PG status: {status}",
        )

    def signalled(self, rank: int, enqueued: int, completed: int, by: int) -> None:
        """The monitor of a rank hears of the timeout of another one and shows where the default group is."""
        self._torch(
            rank,
            1987,
            f"[PG ID 0 PG GUID {DEFAULT} Rank {rank}] Received a dump signal due to a collective timeout from  rank {by} and "
            f"we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: "
            f"{completed}.This is most likely caused by incorrect usages of collectives",
        )

    def nccl(self, rank: int, text: str) -> None:
        """One INFO line of NCCL, of the process of this rank; eight ranks a node."""
        self.lines[rank].append(f"gpu-{rank // 8:03d}:{4000 + rank}:{4000 + rank} [{rank % 8}] NCCL INFO {text}")

    def lost(self, rank: int, peer: str, *, status: int | None = None) -> None:
        """NCCL loses a peer: the connection is closed, or a completion fails with a status of verbs."""
        front = f"gpu-{rank // 8:03d}:{4000 + rank}:{4100 + rank} [{rank % 8}]"
        if status is None:
            self.lines[rank].append(
                f"{front} misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer {peer}<45123>"
            )
        else:
            said = (
                f"Got completion from peer {peer}<38114> with status={status} opcode=0 len=0 vendor err 129 (Send) hca mlx5_0"
            )
            self.lines[rank].append(f"{front} transport/net_ib.cc:2427 NCCL WARN NET/IB: {said}")

    def started(self, rank: int, world: int, *, complete: bool = True, comm_id: str = COMM_ID) -> None:
        """NCCL begins the init of the communicator of all ranks, and completes it."""
        comm = f"ncclCommInitRankConfig comm 0x55d0{rank:04x} rank {rank} nranks {world} cudaDev {rank % 8} nvmlDev {rank % 8}"
        for what in ("START", "COMPLETE") if complete else ("START",):
            self.nccl(rank, f"{comm} busId 1b000 commId {comm_id} - Init {what}")

    def calls(self, rank: int, world: int, numbers: Iterable[int], kind: str = "AllReduce") -> None:
        """Calls with these opCounts."""
        for number in numbers:
            self.nccl(
                rank,
                f"{kind}: opCount {number:x} sendbuff 0x7f00 recvbuff 0x7f00 count 4096 datatype 7 op 0 root 0 "
                f"comm 0x55d0{rank:04x} [nranks={world}] stream 0x55ff",
            )

    def say(self, rank: int, *lines: str) -> None:
        """Any lines."""
        self.lines[rank] += lines

    def write(self, folder: Path, name: str = "rank{}.log") -> Path:
        """One file a rank."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, lines in self.lines.items():
            (folder / name.format(rank)).write_text("\n".join(lines) + "\n")
        return folder

    def write_together(self, path: Path, label: str = "") -> Path:
        """All ranks in one file, line by line in turn, each line with a label in front (`{}` is the rank)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        longest = max(map(len, self.lines.values()))
        rows = [
            label.format(rank) + lines[number]
            for number in range(longest)
            for rank, lines in sorted(self.lines.items())
            if number < len(lines)
        ]
        path.write_text("\n".join(rows) + "\n")
        return path


def one_behind(behind: int = 3, world: int = WORLD) -> RankLogs:
    """Everybody waits in work 1580, one did not enqueue it; the one next to it reports first."""
    logs = RankLogs()
    for rank in range(world):
        if rank == behind:
            logs.signalled(rank, 1579, 1579, by=(behind + 1) % world)
        else:
            logs.timed_out(rank, 1580, 1582)
    return logs
