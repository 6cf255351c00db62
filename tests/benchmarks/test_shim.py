"""What the collector inside the ranks costs: time of a call, what a killed process leaves, bytes of an iteration of training.

Times are over a plain call through in the same run. `FORENSICS_BENCH_ROUNDS` is how often what is compared runs in turn (4),
`FORENSICS_KILLS` how many processes are killed (1,000).
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.benchmarks import shim_cost, shim_hook_cost, shim_volume
from tests.native.shim_drivers import driver
from tests.native.shim_jobs import HERE, RING, compile_c, double, linked, run
from tests.native.shim_scenarios import compiled
from tests.native.test_shim_kills import check, kill_one, rings_of

ROUNDS = int(os.environ.get("FORENSICS_BENCH_ROUNDS", "4"))
KILLS = int(os.environ.get("FORENSICS_KILLS", "1000"))
POSTS = 1_000_000
MYCROFT_KB = 46.8
"""Of a machine of 8 A100 in an iteration of 1.1 s (section 7.3); how many operations that was is not said."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("shim") / "libforensics_shim.so")


def test_time_of_calls(shim: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:  # where logs lie
        cost = shim_cost.measure_all([shim], Path(memory), ROUNDS)[0]
        hooks = shim_hook_cost.measure(Path(memory) / "hooks")
    print(f"\n{f'over a plain call of {cost.plain:.1f} ns':38} {'wanted':>9} {'here':>10} {'plain calls':>12}")
    for what, wanted, here in (
        ("entered and returned, warm", "25 ns" if cost.clock <= 20 else f"{cost.clock + 10:.0f} ns", cost.shim),
        ("  where the log has no slot left", "", cost.beyond),
        ("  two reads of the clock alone", "", cost.clock),
        ("  a text line instead", "", cost.line),
        ("entered and returned, cold", "2 pages", cost.cold),
        ("  two reads and one shared store alone", "", cost.least),
    ):
        print(f"{what:38} {wanted:>9} {here:7.1f} ns {here / cost.plain:12.1f}")
    print("over an empty call")
    for what, wanted, here in (
        ("a state of a proxy step, repeated", "3 ns", hooks["repeated_state"]),
        ("an empty poll", "3 ns", hooks["empty_poll"]),
        ("two posts and a poll of one completion", "", hooks["post_two_poll_one"]),
    ):
        print(f"{what:38} {wanted:>9} {here:7.1f} ns")


def test_fork_of_a_dormant_process(shim: Path, tmp_path: Path) -> None:
    """Fork and exit of a child, preloaded and never used, over the same without; and with a library that is empty."""
    program = compile_c(tmp_path / "forks", [HERE / "forks.c"])
    (tmp_path / "empty.c").write_text("int nothing;")
    empty = compile_c(tmp_path / "empty.so", [tmp_path / "empty.c"], "-shared", "-fPIC")
    found = {
        name: run([program, 3000], tmp_path, library).stdout.split()
        for name, library in (("plain", None), ("empty", empty), ("shim", shim))
    }
    plain = float(found["plain"][1])
    print()
    for name, (faults, nanoseconds) in found.items():
        time = float(nanoseconds)
        print(f"fork and exit, {name:6} {time / 1000:8.1f} us {time / plain:6.2f} times, {faults} page faults")


def test_pages_of_calls(shim: Path, tmp_path: Path) -> None:
    """Pages of the collector that one call touches, by the kernel's marks."""
    program = compile_c(tmp_path / "pages", [HERE / "pages.c"], *linked(double(tmp_path)))
    done = run([program], tmp_path / "logs", shim, FORENSICS_SHIM_SAMPLE_MS="10000")
    print("\nwanted: 2 pages", *done.stdout.splitlines(), sep="\n")


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """`check` compares each log with what its threads knew: no record that is not whole, and every missing one counted."""
    flood = compile_c(tmp_path / "flood", [HERE / "flood.c", *RING])
    chance, accepted, overwritten, torn = random.Random(20_26), 0, 0, 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_one(flood, folder, chance.uniform(0, 0.03))
        torn += check(folder)
        rings = rings_of(folder)[1]
        accepted += sum(len(ring.records) for ring in rings)
        overwritten += sum(ring.overwritten for ring in rings)
        shutil.rmtree(folder)
    print(f"\n{KILLS:,} SIGKILLs: {accepted:,} records accepted, 0 invalid; {overwritten:,} overwritten, {torn:,} torn")


def test_mixed_posts(tmp_path: Path) -> None:
    done = run([driver("verbs_driver", ("verbs",)), "mixed", POSTS], tmp_path / "logs")
    assert (done.returncode, done.stderr) == (0, "")
    print(f"\n{done.stdout.splitlines()[0]}: none in flight at the end, and no age")


def test_bytes_of_an_iteration(shim: Path, tmp_path: Path) -> None:
    found = shim_volume.measure(shim, tmp_path)
    written, hosts = found.written, shim_volume.SHAPE.per_host
    print(f"\n{f'bytes of an iteration of {found.seconds:.2f} s':38} {'rank':>9} {'machine of ' + str(hosts):>13}")
    for what, each in (
        (f"calls: {found.calls:.0f}, and {found.groups:.0f} ends of groups", written["calls"] + written["rare"]),
        (f"flows: {found.proxied:.2f} in {found.proxy_ops:.2f} parts", written["flows"]),
        ("samples of what is in progress", written["samples"]),
        ("epochs of queue pairs", written[shim_volume.EPOCHS]),
        ("together", sum(written.values())),
        ("Mycroft, another job", MYCROFT_KB / 8 * 1000),
    ):
        print(f"{what:38} {each:7.0f} B {each * hosts / 1000:10.1f} KB")
    print(f"8 MiB keep {found.kept['calls']:.0f} such iterations of calls, {found.kept['flows']:.0f} of flows")
    print(f"state pages of a rank, overwritten in place: {found.state_bytes / 1000:.1f} KB")
    # By the account of the stand-in hardware: nothing is left out, and nothing is written twice.
    assert written["calls"] == pytest.approx(64 * (found.calls + found.groups))
    assert written["flows"] == pytest.approx(64 * (found.proxied + 2 * found.proxy_ops))
