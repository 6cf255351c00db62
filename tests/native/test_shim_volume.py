"""An iteration writes the records that its operations call for, by the account of the stand-in hardware."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.shim_volume import EPOCHS, measure
from tests.native.testbed import Shape

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shape", [Shape(pp=2, dp=2, per_host=1), Shape(pp=2, dp=2, tp=2, per_host=4, more={"shards": 1})])
def test_records_of_an_iteration(shape: Shape, built: Path, tmp_path: Path) -> None:
    found = measure(built / "libforensics_shim.so", tmp_path, shape)
    assert found.proxied > 0 and found.written[EPOCHS] > 0
    assert found.written["calls"] == pytest.approx(64 * (found.calls + found.groups))
    assert found.written["flows"] == pytest.approx(64 * (found.proxied + 2 * found.proxy_ops))
    assert found.written["rare"] == 0
