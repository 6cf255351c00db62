"""Whether two verdicts are the same but for names: what redaction must not change."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import orjson

from forensics.bundle.layout import BUNDLE
from forensics.model import Verdict
from forensics.report.json import render
from forensics.sharing.json_text import redact_json
from forensics.sharing.pseudonyms import Pseudonyms
from forensics.sharing.scrub import Scrub

_OF_THE_BYTES = ("bundle_sha256",)
_COLLECTOR = "collector: "
_BYTE = re.compile(r"\bbyte[= ]\d+|\bat byte \d+ of \d+|\b\d+ bytes\b")


def differing_keys(before: Verdict, after: Verdict, names: Pseudonyms) -> list[str]:
    """Top-level keys of the verdict document that differ, once the names of the first are replaced by their pseudonyms.

    Digests and positions in bytes are left out: texts became shorter or longer. What was wrong with the first bundle as a whole
    stands in bundle.json of the second.
    """
    mapped = b"".join(redact_json([render(before)], Scrub(names, Counter())))
    first, second = _comparable(orjson.loads(mapped)), _comparable(orjson.loads(render(after)))
    return [key for key in first if first[key] != second.get(key)]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in document.items() if key not in _OF_THE_BYTES}
    kept["warnings"] = sorted(map(_warning, document["warnings"]))
    return {key: orjson.loads(_BYTE.sub("byte", orjson.dumps(value).decode())) for key, value in kept.items()}


def _warning(said: dict[str, Any]) -> str:
    """Place and statement, whether they are those of the reader or stand in bundle.json."""
    place, statement = str(said["source"]), str(said["statement"])
    if place == BUNDLE and statement.startswith(_COLLECTOR):
        return statement.removeprefix(_COLLECTOR)
    return f"{place.partition('#')[0]}: {statement}"
