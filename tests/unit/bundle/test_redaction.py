from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.bundle.redaction import RULES, redact, redact_argv, redact_stream

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login hf_abcdefghijklmnopqrstuv ok", "login <redacted> ok"),
        ("ghp_0123456789abcdefABCDEF0123456789abcd", "<redacted>"),
        ("github_pat_11ABCDEFG0123456789_abcdefghij", "<redacted>"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key <redacted>."),
        ("wandb: key 0123456789abcdef0123456789abcdef01234567", "wandb: key <redacted>"),
        ("wandb login wandb_v1_ABCDEFGHIJ0123456789xyz", "wandb login <redacted>"),
        ("sk-proj-abcdefghijklmnopqrstuvwxyz", "<redacted>"),
        ("nvapi-abcdefghijklmnopqrstuvwxyz", "<redacted>"),
        (f"auth {JWT}", "auth <redacted>"),
        ("clone https://me:s3cr3t@host/repo.git", "clone https://me:<redacted>@host/repo.git"),
        ("redis://:s3cr3t@10.0.0.1:6379/0", "redis://:<redacted>@10.0.0.1:6379/0"),
        ("GET /b/o?X-Amz-Signature=abc123&x=1", "GET /b/o?X-Amz-Signature=<redacted>&x=1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <redacted>"),
        ("authorization=Basic dXNlcjpwYXNz", "authorization=Basic <redacted>"),
        ("curl -H 'bearer abcdefgh12345'", "curl -H 'bearer <redacted>'"),
        ("python t.py --token abc --lr 3", "python t.py --token <redacted> --lr 3"),
        ("--hub-token=abc", "--hub-token=<redacted>"),
        ("--api-key 'a b' next", "--api-key '<redacted>' next"),
        ("DB_PASSWORD=12345", "DB_PASSWORD=<redacted>"),
        ("aws_secret_access_key = a/b+c", "aws_secret_access_key = <redacted>"),
        ('{"api_key": "a b", "n": 1}', '{"api_key": "<redacted>", "n": 1}'),
        (r"{\"secret\": \"a b\", \"n\": 1}", r"{\"secret\": \"<redacted>\", \"n\": 1}"),
        ("https://x-access-0123456789abcdef@host/x", "https://<redacted>@host/x"),
        ("sk_live_0123456789abcdefgh", "<redacted>"),
        ("npm_0123456789abcdefghijABCDEFGHIJ0123", "<redacted>"),
        ("dapi0123456789abcdef0123456789abcdef", "<redacted>"),
        ("curl -s -u me:s3cr3t https://host", "curl -s -u me:<redacted> https://host"),
        ("SERVICE_KEY=abc-def", "SERVICE_KEY=<redacted>"),
        ("Set-Cookie: id=abc; Path=/", "Set-Cookie: <redacted>"),
        ("AccountKey=abc==;EndpointSuffix=x", "AccountKey=<redacted>;EndpointSuffix=x"),
    ],
)
def test_secrets_are_replaced(text: str, expected: str) -> None:
    counts: Counter[str] = Counter()
    assert redact(text, counts) == expected
    assert sum(counts.values()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "step 12 loss 2.31 tokens=1048576 num_tokens: 4096 tok/s 1.2e5",
        "token: 17 eos_token='</s>' pad_token=[PAD] bos_token=<s>",
        "password: None, api_key=null, secret is not set",
        "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4127, OpType=ALLREDUCE)",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "http://10.0.0.1:29500/store tcp://host:1234",
        "ssh://git@github.com/org/repo",
        "OLDPWD=/work sort_key=None SSH_AUTH_SOCK=/tmp/x max_key=12",
        "task-sk-1 risk-free hf_hub shf_x",
    ],
)
def test_what_training_logs_are_made_of_is_kept(text: str) -> None:
    counts: Counter[str] = Counter()
    assert redact(text, counts) == text
    assert not counts


def test_a_private_key_is_removed_as_a_block() -> None:
    text = f"before\n-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n{KEY}\n-----END RSA PRIVATE KEY-----\nafter\n"
    assert redact(text, Counter()) == "before\n<redacted>\nafter\n"


def test_half_a_private_key_is_hidden_without_the_log_around_it() -> None:
    cut_behind = redact(f"-----BEGIN PRIVATE KEY-----\n[rank0]: {KEY}\n[rank0]: step 12 loss 2.3", Counter())
    assert KEY not in cut_behind
    assert cut_behind.endswith("[rank0]: step 12 loss 2.3")
    cut_before = redact(f"step 11 loss 2.4\n{KEY}\n-----END PRIVATE KEY-----\nstep 12", Counter())
    assert KEY not in cut_before
    assert cut_before.startswith("step 11 loss 2.4\n")
    assert cut_before.endswith("step 12")


def test_command_lines_hide_the_word_after_a_flag() -> None:
    counts: Counter[str] = Counter()
    argv = [
        "python",
        "t.py",
        "--api-key",
        "x",
        "--token",
        "-y",
        "--max-token",
        "512",
        "--password",
        "--verbose",
        "a=hf_" + "z" * 20,
    ]
    assert redact_argv(argv, counts) == [
        "python",
        "t.py",
        "--api-key",
        "<redacted>",
        "--token",
        "<redacted>",
        "--max-token",
        "512",
        "--password",
        "--verbose",
        "a=<redacted>",
    ]
    assert counts == {"secret_flag": 2, "hugging_face": 1}


def test_a_log_keeps_its_bytes_and_is_cut_at_lines() -> None:
    line = b"caf\xc3\xa9 \xff step 12 hf_abcdefghijklmnopqrst\n"
    data = line * 60_000
    counts: Counter[str] = Counter()
    cleaned = b"".join(redact_stream((data[at : at + 1000] for at in range(0, len(data), 1000)), counts))
    assert cleaned == line.replace(b"hf_abcdefghijklmnopqrst", b"<redacted>") * 60_000
    assert counts == {"hugging_face": 60_000}


@pytest.mark.slow
def test_a_log_without_lines_is_not_held_in_memory_as_one() -> None:
    pieces = list(redact_stream((b"x" * 100_000 for _ in range(400)), Counter()))
    assert max(map(len, pieces)) <= 17 << 20
    assert b"".join(pieces) == b"x" * 40_000_000


@pytest.mark.slow
def test_a_long_line_is_looked_at_as_one() -> None:
    secret = b" --api-key " + b"k" * 30 + b" "
    line = b"x" * ((1 << 20) - 11) + secret + b"y" * (1 << 20) + b"\n"
    counts: Counter[str] = Counter()
    assert b"k" * 30 not in b"".join(redact_stream([line] * 3, counts))
    assert counts == {"secret_flag": 3}


@given(st.text(max_size=300))
def test_redaction_is_done_once(text: str) -> None:
    once = redact(text, Counter())
    counts: Counter[str] = Counter()
    assert redact(once, counts) == once


def test_hints_are_what_a_match_cannot_do_without() -> None:
    samples = {
        "hugging_face": "hf_abcdefghijklmnopqrst",
        "slack": "xoxb-0123456789ab",
        "google": "AIza" + "0" * 35,
        "gitlab": "glpat-0123456789abcdef01",
    }
    for rule in RULES:
        if rule.name in samples:
            assert rule.pattern.search(samples[rule.name])
            assert any(hint in samples[rule.name].lower() for hint in rule.hints)
