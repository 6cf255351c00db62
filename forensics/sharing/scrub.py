"""What replaces secrets and names in one artefact, and counts them by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from forensics.bundle.redaction import redact
from forensics.sharing.pseudonyms import Pseudonyms


@dataclass(frozen=True, slots=True)
class Scrub:
    """Secrets by the rules for text, names by the pseudonyms of the whole run; `counts` are those of one artefact."""

    pseudonyms: Pseudonyms
    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The text without secrets and without names of the wanted kinds."""
        return self.pseudonyms.apply(redact(text, self.counts), self.counts)

    def name(self, text: str) -> str:
        """A name of a member or of an identity: as text, and never longer for the secrets in it."""
        return self.text(text).replace("<redacted>", "redacted")

    def found(self, kind: str) -> None:
        """Count one replacement."""
        self.counts[kind] += 1
