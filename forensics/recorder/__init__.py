"""A few lines that a trainer imports to record where each step's time went (docs/frontier.md).

    from forensics.recorder import Recorder
    perf = Recorder("/scratch/job/stages")
    for batch in perf.batches(loader):
        with perf.step():
            with perf.stage("forward"), perf.device_time(): loss = model(batch)
            with perf.stage("backward"): loss.backward()
            with perf.stage("optimizer"): optimizer.step()

Only the standard library is used. Nothing here raises, waits for a disk, a device or another rank: what cannot be recorded is
dropped and counted.
"""

from forensics.recorder.recorder import Recorder as Recorder

__all__ = ["Recorder"]
