"""Dumps of simulated ranks, read by PyTorch's own analyzer of Flight Recorder dumps."""

from __future__ import annotations

import tarfile
from importlib import import_module
from pathlib import Path

import pytest

from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from tests.unit.simulator.small_jobs import DENSE


def test_dumps_are_what_torch_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    components = "torch.distributed.flight_recorder.components"
    loader, builder, settings = (import_module(f"{components}.{name}") for name in ("loader", "builder", "config_manager"))
    for module in ("builder", "utils"):
        monkeypatch.setattr(f"{components}.{module}.tabulate", lambda *_, **__: "", raising=False)
    hung = simulate(DENSE, [parse("host-hang@rank5/backward")], 3, iterations=4)
    bundle.write(hung, bundle.options_of(hung, style="megatron"), losses.Losses(), tmp_path / "bundle.tar")
    with tarfile.open(tmp_path / "bundle.tar") as tar:
        for member in (member for member in tar if "/fr/" in member.name):
            stream = tar.extractfile(member)
            assert stream is not None
            (tmp_path / member.name.rpartition("/")[2].replace("pipe.", "")).write_bytes(stream.read())
    (tmp_path / "bundle.tar").unlink()
    args = settings.JobConfig().parse_args([str(tmp_path), "--allow-incomplete-ranks"])
    details, version = loader.read_dir(args)
    assert len(details) == DENSE.parallel.world and version in ("2.9", "2.10")
    database = builder.build_db(details, args, version)
    assert database.collectives
