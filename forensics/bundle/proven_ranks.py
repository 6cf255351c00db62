"""Bare numbers in names of files are ranks only where all files together show it: a pid or a date looks the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.vocabulary import GUESSED

_LEAST_SHARE = 2
"""One in so many ranks up to the number must have a file: a hung job may lack some; pids of a host are never so dense."""

_LOG = re.compile(r"(?P<front>.*\d.*?\D)\d{1,5}\.(?:log|out|err)(?:\.(?:gz|zst|bz2|xz))?")
# `0_fr_dump` to `31_fr_dump`: what a tool flattens folders of ranks to, or somebody puts first to have files in order.
_LEADING = re.compile(r"(?P<number>\d{1,5})(?P<rest>[_.-][A-Za-z][^\d/]*)")
_DIGITS = re.compile(r"\d+")


def with_proven_ranks(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """The artefacts, without a guessed rank that the numbers of the others do not bear out.

    Ranks that a word, a folder or a manifest names count with the guessed ones: beside `rank0` to `rank3`, `2.txt` is a rank.
    Numbers that begin again on each host, or in each series of logs (`w00_0.log` to `w03_7.log`), count on a node.
    """
    artefacts = _with_leading_numbers(artefacts)
    local = _of_several_nodes(artefacts)
    artefacts = [replace(each, rank=None, rank_method=None) if each.path in local else each for each in artefacts]
    proven = _proven({artefact.rank for artefact in artefacts if artefact.rank is not None})
    return [_checked(artefact, proven) for artefact in artefacts]


def _with_leading_numbers(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """Files of a folder that are called alike but for a number in front, all from 0 up, have that for a guess."""
    found: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for each in artefacts:
        folder, _, name = each.path.rpartition("/")
        # A number and a suffix alone are a bare number.
        match = _LEADING.fullmatch(name) if _LEADING.match(name.rpartition(".")[0] or name) else None
        if each.rank is None and each.sample is None and match is not None:
            found[folder, match["rest"]][int(match["number"])] = each.path
    ranks = {path: rank for of in found.values() if len(of) > 1 and _proven({*of}) == {*of} for rank, path in of.items()}
    return [replace(each, rank=ranks[each.path], rank_method=GUESSED) if each.path in ranks else each for each in artefacts]


def _of_several_nodes(artefacts: Sequence[Artefact]) -> frozenset[str]:
    """Paths of files whose guessed rank another host, or another series of logs of the same folder, has as well."""
    guessed = [each for each in artefacts if each.rank is not None and not each.has_stated_rank]
    hosts: dict[int, set[str]] = defaultdict(set)
    series: dict[tuple[str, int], set[str]] = defaultdict(set)
    fronts = {each.path: found["front"] for each in guessed if (found := _LOG.fullmatch(each.path.rpartition("/")[2]))}
    keys = {path: f"{path.rpartition('/')[0]}/{_DIGITS.sub('#', front)}" for path, front in fronts.items()}
    for each in guessed:
        if each.host:
            hosts[each.rank or 0].add(each.host)
        if each.path in fronts:
            series[keys[each.path], each.rank or 0].add(fronts[each.path])
    again = {key for (key, _), found in series.items() if len(found) > 1}
    on_hosts = any(len(found) > 1 for found in hosts.values())
    return frozenset(each.path for each in guessed if (each.host and on_hosts) or keys.get(each.path) in again)


def _proven(numbers: set[int]) -> frozenset[int]:
    """The lowest numbers, as long as they are dense: 0 to n - 1, or at least half of that."""
    kept = 0
    ordered = sorted(numbers)
    for count, number in enumerate(ordered, start=1):
        if number < _LEAST_SHARE * count and (count > 1 or number == 0):
            kept = count
    return frozenset(ordered[:kept])


def _checked(artefact: Artefact, proven: frozenset[int]) -> Artefact:
    if artefact.rank is None or artefact.has_stated_rank or artefact.rank in proven:
        return artefact
    return replace(artefact, rank=None, rank_method=None)
