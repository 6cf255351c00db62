"""`forensics simulate`: the bundle that a real job would leave behind after a fault, without owning the job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli.progress import simulating
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forensics.fixtures.simulator.job import TrainingJob
    from forensics.fixtures.simulator.losses import Losses
    from forensics.fixtures.simulator.simulation import Simulation


def simulate(
    job: Annotated[str, typer.Option(help="Which job, see --list.")] = "mycroft",
    fault: Annotated[
        list[str] | None,
        typer.Option(help="KIND@PLACE, also with :LEVEL, /STAGE or +COURSE; may be repeated, see --list. Default: none."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides names, positions, noise and all that is left open.")] = 0,
    output: Annotated[Path, typer.Option("-o", "--output", help="Bundle to write.")] = Path("bundle.tar"),
    truth: Annotated[Path | None, typer.Option(help="Write what is true of the case to this JSON file.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE: change the job, such as microbatches=4 or noise.kernel=0.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=2, help="Iterations to run (default: enough for the ring).")] = None,
    onset: Annotated[
        int | None, typer.Option(min=0, help="Iteration in which faults begin, from 0 (default: from the seed).")
    ] = None,
    after: Annotated[
        float | None, typer.Option(min=0.0, help="Seconds from the hang, or the onset, to the collection.")
    ] = None,
    ring: Annotated[int, typer.Option(min=1, help="Entries that the Flight Recorder keeps.")] = 2000,
    only_active: Annotated[bool, typer.Option("--only-active", help="Dumps hold unfinished operations only.")] = False,
    spread: Annotated[float, typer.Option(min=0.0, help="Seconds by which dumps of one collection lie apart.")] = 0.0,
    watchdog: Annotated[bool, typer.Option("--watchdog", help="Collected after the watchdogs ended the job.")] = False,
    missing: Annotated[str, typer.Option(help="Ranks that nothing is left of: 0-3,7 or 10%.")] = "",
    cut: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the files of ranks that end early.")] = 0.0,
    only: Annotated[list[str] | None, typer.Option(help="Sources to write in place of the usual ones, see --list.")] = None,
    beside: Annotated[list[str] | None, typer.Option("--with", help="Sources beside the usual ones, see --list.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show jobs, kinds of faults and places, and end.")] = False,
) -> None:
    """Simulate a training job with a fault, and write the bundle that it would leave behind.

    The physics of the job decide what every rank shows; nothing in the bundle shows the fault. The same seed gives the same
    bytes, another one other names, positions and noise.

    Example: forensics simulate --job mycroft --fault nic-down@node1.gpu1 --seed 7 -o bundle.tar --truth truth.json
    """
    if show:
        _list()
        return
    from forensics.fixtures.simulator import bundle, losses
    from forensics.fixtures.simulator.faults import parse
    from forensics.fixtures.simulator.simulation import simulate as run
    from forensics.fixtures.simulator.sources import checked

    _check_paths(output, truth, force=force)
    shaped = _shaped(job, change or [])
    taken, more = checked(only or ()), checked(beside or ())
    wanted = [parse(text) for text in fault or ["none"]]
    wait = after if after is not None or not watchdog else 660.0
    with simulating() as report:
        made = run(shaped, wanted, seed, iterations=iterations, onset=onset, after_s=wait, observe=report)
        options = bundle.options_of(
            made, ring=ring, only_active=only_active, spread_s=spread, by_watchdog=watchdog and made.hung
        )
        lost = losses.drawn(made.job.parallel.world, made.random("losses"), missing=missing, cut=cut, only=taken, beside=more)
        size = bundle.write(made, options, lost, output, replace=force, observe=report)
    _write_truth(made, lost, truth)
    typer.echo(f"wrote {output} ({size / 1024:.0f} KiB), next: forensics diagnose {output}", err=True)


def _check_paths(output: Path, truth: Path | None, *, force: bool) -> None:
    if output.exists() and not force:
        raise ForensicsError(f"{output} exists; --force replaces it", ExitCode.USAGE)
    for path in (output, *([truth] if truth else [])):
        if not path.parent.is_dir():
            raise ForensicsError(f"{path}: there is no folder {path.parent}", ExitCode.USAGE)


def _shaped(job: str, change: Sequence[str]) -> TrainingJob:
    from forensics.fixtures.simulator.presets import PRESETS
    from forensics.fixtures.simulator.settings import changed

    if job not in PRESETS:
        raise ForensicsError(f"{job!r} is no job; known: {', '.join(PRESETS)}", ExitCode.USAGE)
    return changed(PRESETS[job], list(change))


def _write_truth(made: Simulation, lost: Losses, path: Path | None) -> None:
    import json

    from forensics.fixtures.simulator.truth import truth as true_of

    if path is not None:
        path.write_text(json.dumps(true_of(made, lost), indent=1) + "\n", encoding="utf-8")


def _list() -> None:
    from forensics.fixtures.simulator.course import COURSES, TURNS
    from forensics.fixtures.simulator.faults import FAULTS, PLACES
    from forensics.fixtures.simulator.presets import PRESETS
    from forensics.fixtures.simulator.sources import SOURCES, known

    typer.echo("jobs")
    for job in PRESETS.values():
        sizes = job.parallel
        shape = f"TP{sizes.tensor} PP{sizes.pipeline} DP{sizes.data} CP{sizes.context} EP{sizes.expert}"
        typer.echo(f"  {job.name:<20} {sizes.world:>5} ranks on {job.hosts} nodes, {shape}, {job.schedule}, {job.data_mode}")
    typer.echo("faults: KIND@PLACE[:LEVEL][/STAGE][+COURSE]")
    for kind in FAULTS.values():
        level = f" [level: {kind.level}, default {kind.default:g}]" if kind.level else ""
        stages = f" [stage: {', '.join(kind.stages)}]" if kind.stages else ""
        typer.echo(
            f"  {kind.name:<24} @{kind.place:<5} {kind.description}{level}{stages}{' [course]' if kind.known_courses else ''}"
        )
    typer.echo("courses of faults that last; without one, the seed decides")
    for name, about in {**COURSES, **TURNS}.items():
        typer.echo(f"  {name:<24} {about}")
    typer.echo("places, counted from 0")
    for place, form in PLACES.items():
        typer.echo(f"  {place:<24} {form}")
    typer.echo("sources")
    for name in known():
        usual = "usual" if SOURCES[name].usual else "with --with or --only"
        typer.echo(f"  {name:<24} {SOURCES[name].about} ({usual})")
