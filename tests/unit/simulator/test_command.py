"""`forensics simulate`: what it lists, refuses and writes."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forensics.cli import app
from forensics.errors import ForensicsError
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.settings import changed
from forensics.fixtures.simulator.sources import known


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_list_shows_jobs_faults_and_places() -> None:
    code, output = invoke("--list")
    assert code == 0
    assert all(name in output for name in (*PRESETS, *FAULTS, *known()))


def test_help_has_an_example() -> None:
    code, output = invoke("--help")
    assert code == 0 and "Example: forensics simulate" in output


def test_a_bundle_and_its_truth_are_written(tmp_path: Path) -> None:
    output, truth = tmp_path / "b.tar", tmp_path / "t.json"
    arguments = ("--job", "gpipe-small", "--fault", "host-hang@rank3", "--seed", "4", "-o", str(output), "--truth", str(truth))
    code, said = invoke(*arguments, "--set", "microbatches=2", "--set", "noise.kernel=0.02", "--iterations", "4")
    assert code == 0 and "forensics diagnose" in said
    assert output.stat().st_size > 10_000
    assert json.loads(truth.read_text())["faults"][0]["ranks"] == [3]
    with pytest.raises(ForensicsError, match="--force"):
        invoke(*arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nic-on-fire@rank1", "no fault"),
        ("gpu-throttled@rank1:300parsec/forward", "no stage"),
        ("compute-delay@rank1:5h", "no level"),
        ("host-hang@rank1:5", "has no level"),
        ("nic-slow@rank1:130%", "out of the range"),
        ("pcie-gpu@rank1:0%", "out of the range"),
        ("background-compute@node1:100%", "out of the range"),
        ("compute-delay@rank1:0s", "out of the range"),
    ],
)
def test_a_wrong_fault_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ForensicsError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "place", "level"),
    [("compute-delay@node1.gpu2:30s", "node1.gpu2", 30_000.0), ("nic-down@nic:node0.gpu3", "nic:node0.gpu3", 0.0),
     ("background-traffic@link:node0-node3:40", "link:node0-node3", 40.0), ("kernel-hang", "random", 0.0)],
)  # fmt: skip
def test_a_fault_is_read(text: str, place: str, level: float) -> None:
    wanted = parse(text)
    assert (wanted.place, wanted.level) == (place, level)


@pytest.mark.parametrize(
    "change",
    ["layers", "nonsense=3", "model.nonsense=3", "name.x=1", "parallel.expert=3", "microbatches=many", "microbatches=2.5"],
)
def test_a_wrong_change_is_refused(change: str) -> None:
    with pytest.raises(ForensicsError):
        changed(PRESETS["gpt2-32b"], [change])


def test_sources_are_written_as_asked_for_and_no_others(tmp_path: Path) -> None:
    output = tmp_path / "b.tar"
    arguments = ("--job", "gpipe-small", "--set", "gpus_per_host=2", "--fault", "nic-down@rank3", "--iterations", "3")
    invoke(*arguments, "--only", "shim,nic", "-o", str(output))
    with tarfile.open(output) as tar:
        kinds = {path.split("/")[2] for path in tar.getnames() if path.count("/") > 1}
    assert kinds == {"collectors.jsonl", "node.json", "shim", "nic"}
    with pytest.raises(ForensicsError, match="no kind of source"):
        invoke("--with", "tea,shim", "-o", str(tmp_path / "c.tar"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("parallel.data=0", "parallel.data is at least 1"), ("parallel.data=-1", "at least 1"),
        ("gpus_per_host=0", "at least 1"),
        ("microbatches=0", "microbatches is at least 1"), ("ahead=0", "at least 1"), ("model.layers=0", "at least 1"),
        ("schedule=backwards", "schedule is one of 'gpipe'"), ("data_mode=zero9", "data_mode is one of"),
        ("exchange=gossip", "exchange is one of"), ("rates.nic=0", "rates.nic is above 0"), ("rates.nic=nan", "not finite"),
        ("gpus_per_host=3", "do not fill nodes of 3 GPUs"), ("fabric.nics=3", "divisor of gpus_per_host (8)"),
        ("fabric.channels=3", "even, not 3"), ("fabric.queue_pairs=0", "at least 1"),
        ("fabric.placement=heap", "fabric.placement is one of 'consecutive'"),
        ("noise.kernel=-1", "noise.kernel is at least 0"), ("noise.host=inf", "not finite"), ("data_ns=-5", "at least 0"),
    ],
)  # fmt: skip
def test_a_job_that_cannot_run_is_refused_before_anything_is_written(change: str, said: str, tmp_path: Path) -> None:
    output, truth = tmp_path / "b.tar", tmp_path / "t.json"
    with pytest.raises(ForensicsError, match=re.escape(said)):
        invoke("--job", "gpipe-small", "--set", change, "-o", str(output), "--truth", str(truth))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--onset", "9"), "over before"), (("--missing", "2,99"), "outside the job"),
        (("--fault", "host-hang@rank8"), "outside the job"), (("--fault", "cpu-contention@node1"), "outside the job"),
        (("--truth", "nowhere/t.json"), "there is no folder"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused_before_anything_is_written(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:  # fmt: skip
    with pytest.raises(ForensicsError, match=said):
        invoke("--job", "gpipe-small", "--iterations", "4", *arguments, "-o", str(tmp_path / "b.tar"))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("place", ["rank99", "node9.gpu0", "node0.gpu9", "somewhere"])
def test_a_place_outside_the_job_is_refused(place: str, tmp_path: Path) -> None:
    with pytest.raises(ForensicsError, match=r"outside|no rank"):
        invoke("--job", "gpipe-small", "--fault", f"kernel-hang@{place}", "-o", str(tmp_path / "b.tar"), "--iterations", "3")
