"""Replace secrets in command lines, environment values and logs by `<redacted>`, and count what was replaced by which rule.

The rules go by the shape of well-known keys, and by the name a value is given. They work on text of any encoding that was
decoded as Latin-1, which keeps every byte. What they cannot know is a secret without a name and without a known shape.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

REDACTED = "<redacted>"
_FLAGS = re.ASCII | re.IGNORECASE
_PASSWORD_NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key(?:[_-]?id)?|account[_-]?key|private[_-]?key|credentials?)"
)
_TOKEN_NAMES = "token"
_ASSIGN = r"(?:\\{0,3}[\"'])?\s{0,3}[:=]\s{0,3}"
_QUOTED = r"(?P<quote>\\{0,3}[\"'])(?:(?!(?P=quote))[^\n])+(?P=quote)"
_VALUE = rf"(?:{_QUOTED}|[^\s\"',;&(){{}}<>\[\]\\][^\s\"',;&(){{}}<>\\]*)"
# What follows such a name in every training log and is no secret: nothing, a flag, a count.
_EMPTY_WORDS = frozenset({"none", "null", "true", "false", "yes", "no", "unset", "not", "is", "nil"})
_COUNT = re.compile(r"[-+]?[\d_,.]{1,12}(?:[kmb]|/s|e[-+]?\d+)?\.?", _FLAGS)
_KEY_REACH = 1 << 16
_KEY_MARK = r"-----{} [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BEGIN = re.compile(_KEY_MARK.format("BEGIN"))
_KEY_END = re.compile(_KEY_MARK.format("END"))
_KEY_BLOCK = re.compile(rf"{_KEY_BEGIN.pattern}.{{0,{_KEY_REACH}}}?{_KEY_END.pattern}", re.DOTALL)
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{16,}")
_FLAG_NAME = re.compile(rf"--?[\w-]*(?:{_PASSWORD_NAMES}|{_TOKEN_NAMES})", _FLAGS)
_SECRET_NAME = re.compile(
    rf"[\w.:-]*(?:{_PASSWORD_NAMES}|{_TOKEN_NAMES})|[A-Za-z0-9_]+_(?:KEY|PAT|PWD|PASS|AUTH|CREDS|DSN|COOKIE)", re.ASCII | re.I
)
_PIECE = 1 << 20
_LONGEST_LINE = 16 << 20


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret: of a match, group `keep` stays and group `value` is replaced unless `spare` says so.

    A text without any of the lower-case `hints` cannot match, which is cheap to find out.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    spare: Callable[[str], bool] = lambda value: False


def _is_empty(value: str) -> bool:
    return value.strip("\\\"'").lower() in _EMPTY_WORDS or value == REDACTED


def _is_count(value: str) -> bool:
    """Counts, and the special tokens of a vocabulary such as `</s>` and `[PAD]`."""
    bare = value.strip("\\\"'")
    return _is_empty(value) or bool(_COUNT.fullmatch(bare)) or bare.startswith(("<", "["))


def _shape(name: str, hints: str, pattern: str) -> Rule:
    """A key that is known by its own shape."""
    return Rule(name, tuple(hints.split()), re.compile(rf"(?P<keep>)(?P<value>{pattern})", re.ASCII))


def _after(name: str, hints: str, keep: str, value: str, spare: Callable[[str], bool] = lambda value: False) -> Rule:
    """A value that is known by what stands before it."""
    return Rule(name, tuple(hints.split()), re.compile(rf"(?P<keep>{keep})(?P<value>{value})", _FLAGS), spare)


_AUTHORIZATION = r"\bauthorization(?:\\{0,3}[\"'])?\s{0,3}[:=]\s{0,3}[\"']?(?:(?:bearer|basic|token|digest|negotiate)\s+)?"
_URL_PARAMETER = r"[?&](?:sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|key)="
_NAME_HINTS = "passw passphrase secret key credential"

RULES = (
    _after("url_credentials", "://", r"[a-z][a-z0-9+.-]{1,20}://[^/\s:@\"']*:", r"[^/\s@\"']+(?=@)"),
    _after("url_user", "://", r"[a-z][a-z0-9+.-]{1,20}://", r"[^/\s:@\"'<>]{20,}(?=@)"),
    _after("url_signature", "sig= signature= credential= token= key=", _URL_PARAMETER, r"[^&\s\"']+"),
    _after("authorization", "authorization", _AUTHORIZATION, r"[^\s\"',;]+", _is_empty),
    _after("bearer", "bearer", r"\bbearer\s+", r"[A-Za-z0-9._~+/=-]{8,}"),
    _shape("hugging_face", "hf_ api_org_", r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}"),
    _shape("github", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,})"),
    _shape("gitlab", "glpat- gldt- glrt- glptt-", r"\bgl(?:pat|dt|rt|ptt)-[A-Za-z0-9_-]{16,}"),
    _shape("aws_access_key", "akia asia aroa aida", r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"),
    _shape("slack", "xox hooks.slack", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}|(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]+"),
    _shape("openai", "sk-", r"\bsk-[A-Za-z0-9_-]{20,}"),
    _shape("google", "aiza ya29.", r"\bAIza[0-9A-Za-z_-]{30,}|\bya29\.[0-9A-Za-z_-]{20,}"),
    _shape("nvidia", "nvapi-", r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    _shape("jwt", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _shape("stripe", "sk_live_ rk_live_ sk_test_", r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("package_index", "pypi-ag npm_", r"\bpypi-Ag[A-Za-z0-9_-]{40,}|\bnpm_[A-Za-z0-9]{30,}"),
    _shape("databricks", "dapi", r"\bdapi[0-9a-f]{32}\b"),
    _shape("wandb", "wandb_v1_", r"\bwandb_v1_[A-Za-z0-9_]{20,}"),
    _after("wandb", "wandb", r"wandb[^\n]{0,80}?\b", r"[0-9a-f]{40}\b"),
    _after("user_and_password", "curl", r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[\s=]{1,3}[\"']?[^\s:\"']{1,64}:", r"[^\s\"']+"),
    _after(
        "environment_secret",
        "_key= _pat= _pwd= _pass= _auth= _creds= _dsn= _cookie=",
        r"\b[a-z][a-z0-9_]{0,60}_(?:key|pat|pwd|pass|auth|creds|dsn|cookie)=",
        _VALUE,
        _is_count,
    ),
    _after("cookie", "cookie:", r"\b(?:set-)?cookie:\s{0,3}", r"[^\r\n\"']+", _is_empty),
    _after("secret_flag", _NAME_HINTS, rf"(?<![\w-])--?[\w-]*{_PASSWORD_NAMES}\s{{1,3}}", rf"(?!-){_VALUE}", _is_empty),
    _after("token_flag", "token", rf"(?<![\w-])--?[\w-]*{_TOKEN_NAMES}\s{{1,3}}", rf"(?!-){_VALUE}", _is_count),
    _after("named_secret", _NAME_HINTS, rf"{_PASSWORD_NAMES}{_ASSIGN}", _VALUE, _is_empty),
    _after("named_token", "token", rf"{_TOKEN_NAMES}{_ASSIGN}", _VALUE, _is_count),
)


_MARKS = frozenset(hint for rule in RULES for hint in rule.hints) | frozenset(
    ("private key", "token", "_key", "_pat", "_pwd", "_pass", "_auth", "_creds", "_dsn", "_cookie")
)


def may_hold_secret(lowered: str) -> bool:
    """Whether any rule, or a secret's name, can match in a text, given in lower case: cheap beside looking for them."""
    return any(mark in lowered for mark in _MARKS)


def redact(text: str, counts: Counter[str]) -> str:
    """The text without secrets; `counts` gets one for each replacement, by rule."""
    return _redact_lines(_redact_keys(text, counts), counts)


def is_secret_name(name: str) -> bool:
    """Whether a variable, key or option by this name holds a secret."""
    return len(name) <= 256 and _SECRET_NAME.fullmatch(name) is not None


def is_flag(word: str) -> bool:
    """Whether a word of a command line is an option that a secret follows."""
    return len(word) <= 256 and _FLAG_NAME.fullmatch(word) is not None


def is_no_secret(name: str, value: str) -> bool:
    """Whether what a secret's name was given says nothing: no value, a flag, or for tokens a count."""
    return _is_count(value) if name.lower().endswith("token") else _is_empty(value) or not value.strip()


def redact_argv(argv: Sequence[str], counts: Counter[str]) -> list[str]:
    """A command line without secrets: each word by itself, and the word after a flag such as `--token`."""
    kept: list[str] = []
    for word in argv:
        after_flag = bool(kept) and bool(_FLAG_NAME.fullmatch(kept[-1])) and not word.startswith("--")
        spared = _is_count if after_flag and "token" in kept[-1].lower() else _is_empty
        if after_flag and not spared(word):
            counts["secret_flag"] += 1
            kept.append(REDACTED)
        else:
            kept.append(redact(word, counts))
    return kept


def redact_stream(chunks: Iterable[bytes], counts: Counter[str]) -> Iterator[bytes]:
    """A log without secrets, in pieces of about 1 MiB that end with a line; a line beyond 16 MiB is cut."""
    for piece in pieces(chunks):
        yield redact(piece.decode("latin-1"), counts).encode("latin-1")


def _redact_lines(text: str, counts: Counter[str]) -> str:
    lowered = text.lower()
    for rule in RULES:
        if any(hint in lowered for hint in rule.hints):
            text = _apply(rule, text, counts)
    return text


def _apply(rule: Rule, text: str, counts: Counter[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        value = match["value"]
        if rule.spare(value) or value.strip("\\\"'") == REDACTED:
            return match[0]
        counts[rule.name] += 1
        quote = match.groupdict().get("quote") or ""
        return f"{match['keep']}{quote}{REDACTED}{quote}"

    return rule.pattern.sub(replace, text)


def _redact_keys(text: str, counts: Counter[str]) -> str:
    """The text without private keys.

    A marker whose partner is further away than any key is long, because the log was cut there or only speaks of keys,
    hides what looks like key material beside it and nothing else.
    """
    if "PRIVATE KEY" not in text:
        return text
    kept = _KEY_BLOCK.sub(REDACTED, text)
    for marker, window in ((_KEY_BEGIN, slice(0, _KEY_REACH)), (_KEY_END, slice(-_KEY_REACH, None))):
        kept = _redact_beside(kept, marker, window)
    if kept != text:
        counts["private_key"] += 1
    return kept


def _redact_beside(text: str, marker: re.Pattern[str], window: slice) -> str:
    parts = marker.split(text)
    found = marker.findall(text)
    after = window.start == 0
    for index in range(1, len(parts)) if after else range(len(parts) - 1):
        part = parts[index]
        hidden = _KEY_MATERIAL.sub(REDACTED, part[window])
        parts[index] = hidden + part[_KEY_REACH:] if after else part[:-_KEY_REACH] + hidden
    return "".join(part + mark for part, mark in zip(parts, [*found, ""], strict=True))


def pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes cut after the last line end of about every `_PIECE` bytes; only a line of 16 MiB is cut inside."""
    rest, due = bytearray(), _PIECE
    for chunk in chunks:
        rest += chunk
        while len(rest) >= due:
            cut = rest.rfind(b"\n", 0, _PIECE) + 1 or rest.find(b"\n", _PIECE) + 1
            if not cut and len(rest) < _LONGEST_LINE:
                due = len(rest) + _PIECE
                break
            cut = cut or rest.rfind(b" ", 0, _PIECE) + 1 or _PIECE
            yield bytes(rest[:cut])
            del rest[:cut]
            due = _PIECE
    if rest:
        yield bytes(rest)
