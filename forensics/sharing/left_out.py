"""Why an artefact cannot be shared."""

from __future__ import annotations


class LeftOutError(Exception):
    """The artefact cannot be rewritten safely: it is left out, and this says why."""
