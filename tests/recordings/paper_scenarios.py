"""Write the scenarios that need a device: `python -m tests.recordings.paper_scenarios`.

They are jobs on paper in the real format (tests/recordings/job.py), not recordings; fixtures/scenarios/README.md says which.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import zstandard

from tests.recordings.job import Job, as_pickle

ROOT = Path(__file__).parents[2]


def device_stalled() -> Job:
    """TP 2 x DP 4 on NCCL: the device of rank 5 does not come out of a tensor-parallel gather that rank 4 finished."""
    job = Job(8, backend="nccl")
    tensor = [job.group((first, first + 1), "TENSOR_MODEL_PARALLEL_GROUP") for first in range(0, 8, 2)]
    data = [job.group(range(first, 8, 2), "DATA_PARALLEL_GROUP") for first in range(2)]
    for _ in range(12):
        for group in tensor:
            job.call(group, "_all_gather_base", shapes=((2048, 512),))
        for group in data:
            job.call(group, shapes=((1_048_576,),))
    for group in tensor:
        job.call(group, "_all_gather_base", [r for r in group.members if r != 5], shapes=((2048, 512),))
    job.call(tensor[2], "_all_gather_base", [5], shapes=((2048, 512),), done=False)
    job.call(data[0], shapes=((1_048_576,),))
    job.call(data[1], shapes=((1_048_576,),), done=False)
    for group in tensor:
        job.call(group, "_all_gather_base", shapes=((2048, 512),), done=False)
    return job


def write(job: Job, name: str) -> None:
    """Write one dump a rank, as a watchdog names them, into the scenario's bundle."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for rank in range(job.world):
            content = as_pickle(job.dump(rank))
            member = tarfile.TarInfo(f"comm_lib_trace_rank_{rank}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    target = ROOT / "fixtures/scenarios" / name / "bundle.tar.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(out.getvalue()))


if __name__ == "__main__":
    write(device_stalled(), "device-stalled")
