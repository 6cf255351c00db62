from __future__ import annotations

import json

import pytest

from forensics.ingest.interface import Identity
from tests.unit.ingest.reading import SAMPLES, read, sample


def test_bundle_json() -> None:
    result = sample("bundle_manifest/bundle.json")
    assert result.config()["world_size"] == "3"
    assert result.config()["collection.interrupted"] == "false"
    assert [(row["rank"], row["host"], row["state"]) for row in result.rows("ranks")] == [
        (0, "gpu-001", "alive"),
        (1, "gpu-001", "alive"),
        (2, "gpu-001", "alive"),
    ]
    row = result.row("coverage", rank=1, kind="fr.pipe")
    assert (row["scope"], row["host"], row["status"]) == ("rank", "gpu-001", "not_configured")
    assert result.row("coverage", scope="host", kind="gpu.smi")["status"] == "not_found"
    assert result.problems == []


def test_warnings_of_the_collector_are_passed_on() -> None:
    content = json.dumps(
        {"schema": "forensics.bundle/2", "warnings": ["the ranks disagree"], "ranks": {"x": {}, "1": 5}}
    ).encode()
    result = read(content)
    assert [problem.message for problem in result.problems] == [
        "schema forensics.bundle/2 is not forensics.bundle/1; read as far as its keys are known",
        "collector: the ranks disagree",
    ]
    assert result.rows("ranks") == []


def test_collectors_jsonl() -> None:
    result = sample("collector_runs/collectors.jsonl")
    stacks = [row for row in result.rows("coverage") if row["rank"] == 1 and row["kind"] == "stack.pyspy"]
    assert {row["status"] for row in stacks} == {"ok"}
    assert all(row["begin_ns"] < row["end_ns"] for row in stacks)
    smi = result.row("coverage", kind="gpu.smi")
    assert (smi["scope"], smi["rank"], smi["status"]) == ("host", None, "not_found")
    assert "nvidia-smi is not installed" in smi["reason"]


def test_a_cut_line_and_an_unknown_status_are_warnings_with_their_line() -> None:
    lines = (SAMPLES / "collector_runs/collectors.jsonl").read_bytes().splitlines()
    unknown = b'{"id": "x", "status": "splendid", "begin_ns": 1, "end_ns": 2}'
    result = read(b"\n".join([*lines[:2], unknown, b"", lines[3][:40]]), "nodes/n/collectors.jsonl")
    assert len(result.rows("coverage")) == 2
    assert [problem.locator for problem in result.problems] == ["line=3", "line=5"]


def test_node_json() -> None:
    result = sample("node_facts/node.json")
    assert result.identities == [Identity(host="gpu-001")]
    first, second = result.rows("clocks")
    assert first["host"] == "gpu-001"
    assert second["realtime_ns"] - first["realtime_ns"] == pytest.approx(
        second["monotonic_ns"] - first["monotonic_ns"], rel=1e-3
    )
    assert result.config()["node.container"] == "docker"


def test_rank_json() -> None:
    result = sample("rank_facts/rank.json")
    assert result.identities == [Identity(rank=1, host="gpu-001")]
    (rank,) = result.rows("ranks")
    assert (rank["rank"], rank["host"], rank["local_rank"], rank["pid"], rank["state"]) == (1, "gpu-001", 1, 27835, "alive")
    assert (rank["rank_method"], rank["exit_signal"]) == ("RANK", None)
    config = result.config()
    assert config["env.WORLD_SIZE"] == "3"
    assert config["process.oom_kill"] == "0"
    assert config["process.nice"] == "0"
    assert json.loads(config["process.cpu_limit"])["cores"] == 1.5
    assert json.loads(config["process.children"])[0]["pid"] == 27945


@pytest.mark.parametrize(("devices", "gpu"), [("4,5,6,7", "5"), ("2", "2"), ("", None), ("4", "4"), (None, None)])
def test_the_gpu_of_a_rank(devices: str | None, gpu: str | None) -> None:
    document = {
        "rank": 9,
        "rank_method": "RANK",
        "state_method": "x",
        "local_rank": 1,
        "env": {"CUDA_VISIBLE_DEVICES": devices},
    }
    (rank,) = read(json.dumps(document).encode()).rows("ranks")
    assert rank["gpu"] == gpu


def test_versions_json() -> None:
    result = sample("library_versions/versions.json")
    assert result.row("job_config", rank=2, key="package.torch")["value"] == "2.13.0+cpu"
    assert result.row("job_config", rank=0, key="library.libtorch_cpu.so")["value"].startswith("/opt/venv/")
    assert result.identities == [Identity(rank=None, host="gpu-001")]
