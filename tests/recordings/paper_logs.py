"""Write the scenarios of which only logs are left: `python -m tests.recordings.paper_logs`.

They are logs on paper in the words of the programs (tests/recordings/rank_logs.py); fixtures/scenarios/README.md
says which scenarios those are.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import zstandard

from tests.recordings.rank_logs import RankLogs

ROOT = Path(__file__).parents[2]
LOOKS = ("Sat Mar 21 02:21:07 UTC 2026", "Sat Mar 21 02:24:31 UTC 2026")


def behind_in_logs() -> dict[str, str]:
    """Eight ranks of one node: rank 3 stays in its host code before work 1580, rank 4 reports first, Slurm ends the job."""
    logs = RankLogs()
    for rank in range(8):
        logs.started(rank, 8)
        if rank == 3:
            logs.signalled(rank, 1579, 1579, by=4)
        else:
            logs.timed_out(rank, 1580, 1582)
            logs.signalled(rank, 1582, 1579, by=4)
    files = {f"logs/rank{rank}.log": "\n".join(lines) + "\n" for rank, lines in logs.lines.items()}
    files["slurm-4711.out"] = (
        "slurmstepd: error: *** STEP 4711.0 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 DUE TO TIME LIMIT ***\n"
        "srun: error: gpu-000: task 3: Killed\n"
    )
    return files


def connection_lost_first() -> dict[str, str]:
    """Four hosts of eight ranks: gpu-002 stops answering, the others lose it and then each other."""
    logs = RankLogs()
    for rank in range(32):
        host = rank // 8
        logs.nccl(rank, f"Bootstrap: Using eth0:10.0.0.{host}<0>")
        logs.started(rank, 32)
    for rank in (0, 9, 24, 31):
        logs.lost(rank, "10.0.0.2", status=12)
    for rank, peer in ((3, "gpu-001"), (12, "gpu-003"), (27, "gpu-000")):
        logs.lost(rank, peer)
    return {f"nccl.{rank}.log": "\n".join(lines) + "\n" for rank, lines in logs.lines.items()}


def reported_missing() -> dict[str, str]:
    """Eight ranks under mpirun: Horovod's coordinator reports twice that rank 5 did not submit two tensors."""
    lines = []
    for minute in (4, 5):
        lines += [
            f"[1,0]<stderr>:[2026-03-21 02:0{minute}:11.204417: W horovod/common/stall_inspector.cc:107] One or more "
            "tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of "
            "ranks for more than 60 seconds. This may indicate that different ranks are trying to submit different tensors or "
            "that only subset of ranks is submitting tensors, which will cause deadlock. ",
            "[1,0]<stderr>:Missing ranks:",
            "[1,0]<stderr>:5: [allreduce.decoder.norm.bias, allreduce.decoder.norm.weight]",
            "[1,7]<stdout>:validation loss 2.41",
        ]
    return {"mpirun-4711.out": "\n".join(lines) + "\n"}


def as_cuda_gdb(pid: int, device: int, grid: int, kernel: str) -> str:
    """What cuda-gdb prints of one process: its main thread, and the kernel on its device."""
    return (
        f'Thread 1 (Thread 0x7f2ac41ff740 (LWP {pid}) "python3"):\n'
        "#0  0x00007ffd2e1b7b0d in clock_gettime ()\n"
        "#1  0x00007f2a9d4f6a0e in ?? () from /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "#2  0x00007f2a9d5a2c11 in cuStreamSynchronize () from /usr/lib/x86_64-linux-gnu/libcuda.so.1\n"
        "#3  0x00007f2ac0b1e9d5 in cudaStreamSynchronize () from /opt/venv/lib/libcudart.so.12\n"
        "(cuda-gdb) info cuda kernels\n"
        "  Kernel Parent Dev  Grid Status            SMs Mask    GridDim BlockDim Invocation\n"
        f"*      0      -   {device} {grid} Active 0x00000000000003ff   (24,1,1) (512,1,1) {kernel}\n"
    )


def kernel_apart() -> dict[str, str]:
    """Four ranks whose watchdogs all give up on one reduction; cuda-gdb finds the device of rank 2 in another kernel."""
    logs = RankLogs()
    for rank in range(4):
        logs.started(rank, 4)
        logs.timed_out(rank, 413, 413)
    files = {f"rank{rank}.log": "\n".join(lines) + "\n" for rank, lines in logs.lines.items()}
    reduction = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    stuck = "void flash::compute_dq_dk_dv_kernel<128, 64, 128>(Flash_bwd_params)"
    for rank in range(4):
        looks = [as_cuda_gdb(4100 + rank, rank, 90_000 + rank, stuck if rank == 2 else reduction)] * 2
        files[f"rank{rank}_cuda-gdb.txt"] = "".join(f"{taken}\n{look}" for taken, look in zip(LOOKS, looks, strict=True))
    return files


def straggler_reported() -> dict[str, str]:
    """Eight ranks: a detector of stragglers scores rank 5 low in each of four reports, between steps."""
    lines = []
    for report in range(4):
        lines.append("training.NVRxStragglerDetection: GPU relative performance:")
        for rank in range(8):
            score = 0.4 if rank == 5 else 1 - (rank + report) % 4 / 100
            lines.append(f"  Rank={rank} Node=gpu-{rank // 4:03} Score={score:.2f}")
        lines += ["", f" iteration {10 * report + 10:8}/ 500 | elapsed time per iteration (ms): 2196.5 |"]
    return {"train.log": "\n".join(lines) + "\n"}


def working_in_logs() -> dict[str, str]:
    """Four ranks: rank 0 validates image by image, its peers give up on the barrier behind that, and it goes on."""
    lines = [f"[rank {rank}] epoch 2 done, loss 0.2{rank}" for rank in range(4)]
    for image in range(30):
        lines.append(f"[rank 0] validating {40 * image + 40}/91000")
        for rank in range(1, 4) if image == 26 else ():
            said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6110, OpType=ALLREDUCE, NumelIn=1, "
            lines.append(
                f"[rank{rank}]:[E ProcessGroupNCCL.cpp:563] [Rank {rank}] {said}NumelOut=1, Timeout(ms)=600000) "
                f"ran for 60001{rank} milliseconds before timing out."
            )
    return {"train.log": "\n".join(lines) + "\n"}


def write(files: Mapping[str, str | bytes], name: str) -> None:
    """Write the files as the scenario's bundle."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, text in sorted(files.items()):
            content = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    target = ROOT / "fixtures/scenarios" / name / "bundle.tar.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(out.getvalue()))


if __name__ == "__main__":
    write(behind_in_logs(), "behind-in-logs")
    write(connection_lost_first(), "connection-lost-first")
    write(kernel_apart(), "kernel-apart")
    write(reported_missing(), "reported-missing")
    write(straggler_reported(), "straggler-reported")
    write(working_in_logs(), "working-in-logs")
