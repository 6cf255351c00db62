from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("live faults")
    group.addoption("--victim", type=int, help="rank that the faults happen to (default: one for each fault)")
    group.addoption("--at-step", type=int, help="step at which they happen (default: one for each fault)")
