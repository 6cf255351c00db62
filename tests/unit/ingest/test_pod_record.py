"""Records of pods: how containers ended in this start, and nothing of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.ingest import choose
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

FAILED = {"exitCode": 1, "finishedAt": "2026-03-04T05:06:31Z", "reason": "Error"}
KILLED = {"exitCode": 137, "finishedAt": "2026-03-04T05:06:07Z", "reason": "OOMKilled"}
RUNS = {"running": {"startedAt": "2026-03-04T04:00:00Z"}}


def pod(
    number: int, state: dict[str, Any], last: dict[str, Any] | None = None, rank: bool = True, gpus: str = "1"
) -> dict[str, Any]:
    env = [{"name": "MASTER_PORT", "value": "29500"}, *([{"name": "RANK", "value": str(number)}] if rank else [])]
    container = {"env": env, "name": "train", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    status = {"lastState": last or {}, "name": "train", "state": state}
    prepared = {"name": "prepare", "state": {"terminated": {"exitCode": 3}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"name": "x"}, "name": f"fit-{number}", "ownerReferences": [{"name": "fit"}]},
        "spec": {"containers": [container]},
        "status": {"containerStatuses": [status], "initContainerStatuses": [prepared]},
    }


def listed(*pods: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "items": list(pods), "kind": "List"}


def as_yaml(value: Any, depth: int = 0) -> str:
    """As kubectl writes it: lists at the level of their key."""
    pad = " " * depth
    if isinstance(value, list):
        return "".join(pad + "- " + as_yaml(each, depth + 2).lstrip(" ") for each in value)
    lines = ""
    for key, each in value.items():
        if isinstance(each, dict | list) and each:
            lines += f"{pad}{key}:\n" + as_yaml(each, depth if isinstance(each, list) else depth + 2)
        else:
            bare = isinstance(each, int) or (isinstance(each, str) and not each[:1].isdecimal())
            lines += f"{pad}{key}: {each if bare else json.dumps(each)}\n"
    return lines


FORMS = pytest.mark.parametrize(
    "form", [as_yaml, json.dumps, lambda each: json.dumps(each, indent=4)], ids=["yaml", "json", "long"]
)


@FORMS
def test_how_containers_ended(form: Any) -> None:
    pods = listed(pod(0, RUNS), pod(1, {"terminated": KILLED}), pod(2, {"terminated": {"exitCode": 0, "reason": "Completed"}}))
    found = read(form(pods).encode(), "pods.txt")
    assert found.ingester == "pod_record" and found.problems == []
    events = [(row["kind"], row["subject"]) for row in found.rows("log_events")]
    assert events == [("process_exit", "exitcode=137 pod=fit-1"), ("oom_kill", "pod=fit-1 OOMKilled")]
    assert found.rows("log_events")[0]["time_ns"] == 1_772_600_767 * 10**9
    assert [(row["host"], row["rank"]) for row in found.rows("process_ranks")] == [("fit-0", 0), ("fit-1", 1), ("fit-2", 2)]


@FORMS
def test_an_earlier_start_ended_nothing(form: Any) -> None:
    assert read(form(pod(1, RUNS, {"terminated": KILLED})).encode(), "pod").rows("log_events") == []


def test_several_gpus_or_no_number_are_no_rank() -> None:
    pods = listed(pod(0, RUNS, gpus="8"), pod(1, RUNS, rank=False))
    assert read(as_yaml(pods).encode(), "pods").rows("process_ranks") == []


@pytest.mark.parametrize("others", [RUNS, {"terminated": FAILED}], ids=["others wait", "others failed then"])
def test_the_rank_of_the_pod_that_was_killed_is_named(tmp_path: Path, others: dict[str, Any]) -> None:
    for number in range(4):
        (tmp_path / f"{number}.yaml").write_text(as_yaml(pod(number, {"terminated": KILLED} if number == 3 else others)))
    assert named(verdict_of(tmp_path)) == {3}


def test_a_pod_of_unknown_ranks_is_pointed_at(tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(as_yaml(listed(pod(0, RUNS, rank=False), pod(1, {"terminated": KILLED}, rank=False))))
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects and verdict.would_change[0].startswith("the log of pod fit-1, which ended (pods.yaml#line=")


@pytest.mark.parametrize("pods", [[RUNS] * 3, [{"terminated": FAILED}] * 3], ids=["all run", "all failed"])
def test_where_all_pods_are_alike_nobody_is_named(tmp_path: Path, pods: list[dict[str, Any]]) -> None:
    (tmp_path / "pods.json").write_text(json.dumps(listed(*(pod(number, state) for number, state in enumerate(pods)))))
    assert named(verdict_of(tmp_path)) == set()


@pytest.mark.parametrize(
    "text", ["apiVersion: v1\nkind: Service\n", "kind: Pod\n", '{"kind": "Pod"}', "step 4\napiVersion: v1\nkind: Pod\n"]
)
def test_other_texts_are_left_alone(text: str) -> None:
    found = choose(text.encode(), "a.yaml")
    assert found is None or found.name != "pod_record"


@pytest.mark.parametrize(
    "text", ['{"apiVersion": "v1", "kind": "Pod", ', "apiVersion: v1\nkind: Pod\n" + "a:\n" * 99 + "  - - b: c\n"]
)
def test_cut_and_hostile_records_give_nothing(text: str) -> None:
    assert read(text.encode(), "pod").rows("log_events") == []
