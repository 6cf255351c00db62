from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from forensics.errors import ForensicsError
from forensics.model import Evidence, TreeLine, Verdict
from forensics.report import markdown
from forensics.report.plain import plain
from tests.unit.report.verdicts import DATALOADER, HANG, HEALTHY

HOSTILE = [
    "[red]text[/red]",
    "`code` ``more``` <script>alert(1)</script>",
    "@everyone and @team/oncall see #12 and !34",
    "</details><img src=x onerror=alert(1)>",
    "a | b | c\n\n# heading\n- item",
    "1. not a list",
    "- not a list",
    "***bold*** __init__ ~~gone~~ $x$",
    "[label](https://example.org) www.example.org https://example.org",
    "&lt;b&gt; &#64; \\",
    "```",
    "---",
    ":tada:",
]
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def shown(fragment: str) -> str:
    """The text a reader sees."""
    html = MARKDOWN.render(fragment)
    return unescape(re.sub(r"</?(?:p|code)>", "", html)).strip()


def hostile(name: str) -> Verdict:
    suspect = replace(DATALOADER, hosts=(name,), evidence=(Evidence(name, name),), next_steps=(name,))
    return replace(HANG, summary=name, suspects=(suspect,), tree=(TreeLine(0, (0, 1), (name,), None),), would_change=(name,))


@pytest.mark.parametrize("name", HOSTILE)
def test_escaped_text_shows_exactly_its_characters(name: str) -> None:
    assert shown(markdown.escape(name)) == plain(name).strip()


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_escaped_text_is_one_paragraph_of_text_and_code(raw: str) -> None:
    html = MARKDOWN.render("x " + markdown.escape(raw))
    assert set(re.findall(r"<[^>]*>", html)) - {"<code>", "</code>"} == {"<p>", "</p>"}


def test_identifiers_are_code_without_backslashes() -> None:
    assert markdown.escape("ranks 0-1 wait in all_reduce of 0:default_pg") == "ranks 0-1 wait in `all_reduce` of `0:default_pg`"
    assert "\\" not in markdown.render(HANG)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_code_span_shows_exactly_its_characters(raw: str) -> None:
    html = MARKDOWN.render("x" + markdown.code(raw)).strip()
    inside = re.fullmatch(r"<p>x<code>(.*)</code></p>", html)
    assert inside is not None
    assert unescape(inside.group(1)).strip() == plain(raw).strip()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_add_no_structure(name: str) -> None:
    def structure(verdict: Verdict) -> list[str]:
        tokens = MARKDOWN.parse(markdown.render(verdict))
        return [token.type + (token.content if token.type == "html_block" else "") for token in tokens]

    assert structure(hostile(name)) == structure(hostile("innocent"))


@pytest.mark.parametrize("name", HOSTILE)
def test_nobody_is_notified_and_nothing_is_linked(name: str) -> None:
    tokens = MARKDOWN.parse(markdown.render(hostile(name)))
    spans = [child for token in tokens for child in token.children or ()]
    prose = "".join(child.content if child.type == "text" else " " for child in spans)
    assert not re.search(r"[@#!]\w|://|www\.", prose)


def test_summary_comes_before_the_folded_sections() -> None:
    report = markdown.render(HANG)
    assert report.startswith("### HANG: rank 2 (host gpu-017) - stage: DATA")
    summary, _, folded = report.partition("<details>")
    assert "**EVIDENCE**" in summary
    assert "**NEXT STEPS**" in summary
    assert "`ranks/2/fr/0.json#entry=5`" in summary
    assert "<summary>COVERAGE</summary>" in folded
    assert report.count("<details>") == report.count("</details>")


def test_coverage_comes_before_alternatives() -> None:
    report = markdown.render(HANG)
    assert report.index("<summary>COVERAGE") < report.index("<summary>ALTERNATIVES")


@pytest.mark.parametrize("verdict", [HANG, HEALTHY, hostile("&" * 9_000), hostile("é" * 9_000)])
@pytest.mark.parametrize("limit", [2_000, 3_000, 60_000])
def test_a_limit_is_kept_and_what_is_missing_is_said(verdict: Verdict, limit: int) -> None:
    whole, report = markdown.render(verdict), markdown.render(verdict, max_bytes=limit)
    assert len(report.encode()) <= limit
    assert report.count("<details>") == report.count("</details>")
    assert (report == whole) == (len(whole.encode()) <= limit)
    assert (f"to stay below {limit} bytes" in report) == (report != whole)
    assert report.startswith(whole[:60])


def test_an_impossible_limit_is_refused() -> None:
    with pytest.raises(ForensicsError, match="at least 2000 bytes"):
        markdown.render(HANG, max_bytes=100)
