"""Secrets that must not come out again, and the search for them in every byte of a bundle."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import zstandard

CANARY = "kANarY7Qz0Xv9LmT2sRw4"
PASSWORD = f"pw{CANARY}"
HUGGING_FACE = f"hf_{CANARY}aaaa"
AWS = "AKIAKANARY7QZ0XV9LMT"
KEY_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PRIVATE_KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_BODY}\n{KEY_BODY}\n-----END RSA PRIVATE KEY-----"
URL = f"https://builder:{PASSWORD}@git.example.org/repo.git"

PLANTED = (CANARY, AWS, KEY_BODY)

LINES = (
    f"export DB_PASSWORD={PASSWORD}",
    f"huggingface login {HUGGING_FACE}",
    f"python train.py --api-key {PASSWORD} --lr 3",
    f"cloning {URL}",
    f"AWS_ACCESS_KEY_ID={AWS} AWS_SECRET_ACCESS_KEY={PASSWORD}",
    f"Authorization: Bearer {PASSWORD}",
    PRIVATE_KEY,
)
"""What logs and command lines hold; each line has at least one canary."""


def leaks(bundle: Path, wanted: tuple[str, ...] = PLANTED) -> list[tuple[str, str]]:
    """(place, canary) for each canary in the raw bytes of the file, or in a member, as it is stored or decompressed."""
    raw = bundle.read_bytes()
    places = {"raw": raw}
    with tarfile.open(bundle) as archive:
        for info in archive:
            places[info.name] = b"\n".join(_forms(archive.extractfile(info).read()))  # type: ignore[union-attr]
            places[f"name of {info.name}"] = info.name.encode()
    needles = [(canary, form) for canary in wanted for form in (canary.encode(), canary.encode("utf-16-le"))]
    return [(place, canary) for place, content in places.items() for canary, form in needles if form in content]


def _forms(content: bytes) -> list[bytes]:
    if content.startswith(b"\x1f\x8b"):
        return [content, gzip.decompress(content)]
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        with zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True) as stream:
            return [content, stream.read()]
    return [content]
