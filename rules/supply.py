"""Supply reductions and rules with what they ask for: parameters by their types, each reduction computed late and once."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from types import ModuleType, NoneType
from typing import Any, TypeVar, cast, get_type_hints

from forensics.rules import reductions
from forensics.rules.reductions.interface import is_reduction

Made = TypeVar("Made")
Function = Callable[..., Any]
Providers = Mapping[object, Function]
"""The function that makes each type."""


class WiringError(TypeError):
    """Reductions or rules that cannot be supplied: a mistake in the program, whatever the case."""


@cache
def needed(function: Function) -> Mapping[str, object]:
    """Types of the parameters of a function, by their names."""
    hints = get_type_hints(function)
    names = inspect.signature(function).parameters
    if bare := [name for name in names if name not in hints]:
        raise WiringError(f"{_name(function)} has parameters without a type: {', '.join(bare)}")
    return {name: hints[name] for name in names}


def providers_in(modules: Iterable[ModuleType]) -> Providers:
    """Reductions that these modules define, by the type that each makes."""
    found: dict[object, Function] = {}
    for module in modules:
        for function in vars(module).values():
            if not is_reduction(function) or function.__module__ != module.__name__:
                continue
            made = function if isinstance(function, type) else get_type_hints(function).get("return")
            if made in (None, NoneType):
                raise WiringError(f"{_name(function)} has no result")
            if made in found:
                raise WiringError(f"{_name(function)} and {_name(found[made])} both make {_type(made)}")
            found[made] = function
    return found


@cache
def providers() -> Providers:
    """Every reduction of the product."""
    packages = pkgutil.walk_packages(reductions.__path__, f"{reductions.__name__}.")
    return providers_in(importlib.import_module(found.name) for found in packages)


def check(known: Providers, given: Collection[object], asked: Iterable[tuple[str, object]] = ()) -> None:
    """Raise when a type is asked for that nobody makes, or when reductions need each other in a circle.

    `asked` are types that others ask for, each with who does.
    """
    within = ((_name(function), wanted) for function in known.values() for wanted in needed(function).values())
    for who, wanted in (*within, *asked):
        if wanted not in known and wanted not in given:
            raise WiringError(f"{who} asks for {_type(wanted)}, and no reduction makes it")
    try:
        TopologicalSorter({made: set(needed(function).values()) for made, function in known.items()}).prepare()
    except CycleError as error:
        raise WiringError(f"reductions in a circle: {' < '.join(_type(made) for made in error.args[1])}") from error


class Supply:
    """The values of one case by type: those `given`, and those that reductions make of them when they are asked for."""

    def __init__(self, given: Mapping[object, object], known: Providers | None = None) -> None:
        self._values = dict(given)
        self._providers = providers() if known is None else known

    def get(self, wanted: Callable[..., Made]) -> Made:
        """Return the value of a type."""
        return cast("Made", self._value(wanted))

    def call(self, function: Callable[..., Made], beside: Mapping[object, object] | None = None) -> Made:
        """Call a function with what its parameters ask for; `beside` are values for this call only."""
        own = beside or {}
        wanted = needed(function).items()
        return function(**{name: own[kind] if kind in own else self._value(kind) for name, kind in wanted})

    def _value(self, wanted: object) -> object:
        if wanted not in self._values:
            self._values[wanted] = self.call(self._providers[wanted])
        return self._values[wanted]


def _name(function: Function) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _type(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))
