"""What logs say now: the sample log, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.shim.status import log_files, statuses

SAMPLE = Path(__file__).parents[3] / "fixtures/samples/shim_log/one_of_everything.frx"


def test_a_log_tells_who_wrote_it_and_how_far_it_got() -> None:
    (one,) = statuses([SAMPLE])
    assert (one.rank, one.problem) == (1, None)
    assert one.pid is not None and one.host and not one.alive
    assert one.communicators
    assert all(comm.operations >= 0 and comm.size for comm in one.communicators)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut inside its head"),
        (b"FRXSHIM-OFF 1 reason=2 errno=28\n", "no space (errno 28)"),
        (b"x" * 4096, "overwritten"),
    ],
)
def test_a_file_that_is_no_log_says_why(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "host.0.1.1.frx"
    path.write_bytes(content)
    (one,) = statuses([path])
    assert one.pid is None and words in (one.problem or "")


@pytest.mark.parametrize("size", [2047, 2048, 4096, 5000, 9000])
def test_a_cut_log_is_read_as_far_as_it_goes(size: int, tmp_path: Path) -> None:
    path = tmp_path / "host.0.1.1.frx"
    path.write_bytes(SAMPLE.read_bytes()[:size])
    (one,) = statuses([path])
    assert one.problem and "cut" in one.problem


def test_logs_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in ("a/x.frx", "a/y.off", "a/notes.txt", "b/z.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in log_files(tmp_path)] == ["x.frx", "y.off", "z.tmp"]
    assert log_files(SAMPLE) == [SAMPLE]
