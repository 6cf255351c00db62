"""Instructions among the evidence: messages that they quote have not happened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

LARGEST_MANUAL = 1 << 18
_ANY_TITLE = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,64}#{1,2} \S")
_TITLE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s{0,64}#{1,2} [^\n]{0,120}?"
    rb"\b(?i:run-?book|play-?book|troubleshooting|how[ -]to|user guide|faq|cheat ?sheet|what to do (?:if|when))\b"
)
# Nobody calls a report so: it may quote more.
_SURELY = re.compile(r"(?i:run-?book|play-?book|cheat ?-?sheet)")
# A file that is called so needs no such title.
_NAME = re.compile(
    r"(?i:(?:^|[_. -])(?:run-?book|play-?book|troubleshooting|how-?to|faq|cheat-?sheet|readme|change-?log|contributing)s?"
    r"(?=[_. -]|$))"
)
# What a repository keeps in words, of incidents as well, is of the past.
_FOLDER = re.compile(r"(?i:(?:^|/)(?:docs?|documentation|wiki)/)")
# Notes on what is over, whether they have a title or not.
_PAST = re.compile(
    r"(?i:(?:^|[/_. -])(?:old|former|previous|past|archived?|post-?mortems?|retrospectives?)(?=[/_. -])"
    r".{0,255}\.(?:md|markdown)$)"
)
# The text of a document of Word, which is called as its file is, and shows by no mark what it quotes: lines that begin as those
# of logs do.
_OF_WORD = re.compile(r"(?P<name>[^/]{1,255}\.docx)/word/document\.xml/[^/]{1,64}")
_PRINTED = re.compile(r"\s*(?:\[|<\d|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d{1,2} \d\d:)")
_COMMAND = re.compile(
    r"\s*(?:[$#>] |(?:sudo |kubectl |nvidia-smi|dmesg|ps |py-spy |ssh |export |scontrol |sinfo |ib\w+ |grep |cat ))"
)
# A page of a wiki that was saved: sentences, with short blocks of what was printed. A console that was saved is one long block.
_PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,64}<(?:!doctype html|html)\b", re.IGNORECASE)
_PROSE = re.compile(rb"<(?:p|h[1-6]|li)[\s>]", re.IGNORECASE)
_BLOCK = re.compile(rb"<pre\b[^>]{0,500}>(.*?)(?:</pre>|\Z)", re.IGNORECASE | re.DOTALL)
# What people wrote one below the other: marked so for search engines, or by elements of posts and comments.
_THREAD = re.compile(rb"DiscussionForumPosting|\bQAPage\b")
_POST = re.compile(
    rb"""<(?:div|article|section|li|td|main)\b[^>]{0,300}?\b(?:class|id)=["'](?:[^"'>]{0,200}[ _-])?"""
    rb"""(?:topic-body|posts?|comments?|repl(?:y|ies)|answers?|question|message)(?=[ _"'\d-])""",
    re.IGNORECASE,
)
_LEAST_POSTS = 2
# Who joins a thread has another job, and who answers a question shows what may happen.
_ANOTHER = re.compile(
    rb"(?i:\b(?:same|similar) (?:here|issue|problem|error|thing)\b|\bme too\b"
    rb"|\bI(?:'m| am) (?:also|facing)\b|\bI also (?:get|have|see|met)\b"
    rb"|<(?:div|article|section|li)\b[^>]{0,300}?\b(?:class|id)=[\"'](?:[^\"'>]{0,200}[ _-])?answer(?=[ _\"'\d-]))"
)
# Below instructions people comment as well.
_PAGE_TITLE = re.compile(
    rb"(?i:<title>[^<]{0,200}?\b(?:run-?book|play-?book|troubleshooting|how[ -]to|user guide|faq|cheat ?sheet|wiki)\b)"
)
_LONGEST_QUOTE = 3
_HEADING = re.compile(r"#{1,6} \S")
_FENCE = ("```", "~~~")
# A chapter of a book has many sections of sentences with short examples; a ticket has a few, with what was printed.
_LEAST_HEADINGS, _LEAST_BLOCKS, _LEAST_SENTENCES, _MOST_PER_BLOCK = 8, 8, 80, 10


def may_be_manual(head: bytes, path: str) -> bool:
    """Whether a text begins with a title in Markdown or as a page in HTML, is called notes on the past or a runbook of Word."""
    is_titled = _ANY_TITLE.match(head) is not None or _PAGE.match(head) is not None
    return is_titled or _PAST.search(path) is not None or _is_runbook_of_word(path)


def is_manual(content: bytes, path: str) -> bool:
    """Whether a text titled or called so quotes no more than a few lines at once, or any page is a chapter of a book.

    Of pages in HTML the title does not matter, nor of notes that are called old.
    """
    if not may_be_manual(content, path) or len(content) > LARGEST_MANUAL:
        return False
    if is_page(content):
        if is_thread(content) and not _PAGE_TITLE.search(content):
            return False
        quoted = (block[1].strip().count(b"\n") + 1 for block in _BLOCK.finditer(content))
        return _PROSE.search(content) is not None and max(quoted, default=0) <= _MOST_PER_BLOCK
    lines = content.decode("utf-8", "replace").splitlines()
    if _is_runbook_of_word(path):
        return sum(_PRINTED.match(line) is not None for line in lines) <= _MOST_PER_BLOCK
    is_named_so = _NAME.search(path.rpartition("/")[2]) is not None or _FOLDER.search(path) is not None
    is_called_so = _TITLE.match(content) is not None or is_named_so
    is_past = _PAST.search(path) is not None
    is_surely = is_past or _SURELY.search(path.rpartition("/")[2]) is not None
    most = _MOST_PER_BLOCK if is_surely else _LONGEST_QUOTE
    return ((is_called_so or is_past) and _quotes_little(lines, most)) or _is_chapter(lines)


def _is_runbook_of_word(path: str) -> bool:
    found = _OF_WORD.search(path)
    return found is not None and _SURELY.search(found["name"]) is not None


def is_page(content: bytes) -> bool:
    """Whether a text is a page in HTML."""
    return _PAGE.match(content) is not None


def is_thread(page: bytes) -> bool:
    """Whether a page is a discussion, in whose posts somebody shows what happened to them."""
    return _THREAD.search(page) is not None or len([*islice(_POST.finditer(page), _LEAST_POSTS)]) == _LEAST_POSTS


def blocks_of_page(page: bytes) -> list[tuple[int, bytes]]:
    """What was printed, block by block, each with the number of lines before it; not what others met in jobs of their own."""
    blocks = list(_BLOCK.finditer(page))
    end = next((found.start() for found in _ANOTHER.finditer(page, blocks[0].end())), len(page)) if blocks else 0
    return [(page.count(b"\n", 0, block.start(1)), block[1]) for block in blocks if block.start() < end]


def _quotes_little(lines: Sequence[str], most: int) -> bool:
    """Commands aside: a report has logs below it."""
    quoted, is_inside = 0, False
    for line in lines:
        if line.lstrip().startswith(_FENCE):
            quoted, is_inside = 0, not is_inside
        elif is_inside or line.startswith(("    ", "\t")):
            quoted += bool(line.strip()) and _COMMAND.match(line) is None
        elif line.strip():
            quoted = 0
        if quoted > most:
            return False
    return True


def _is_chapter(lines: Sequence[str]) -> bool:
    headings = blocks = sentences = quoted = 0
    is_inside = False
    for line in lines:
        if line.lstrip().startswith(_FENCE):
            is_inside = not is_inside
            blocks += is_inside
        elif is_inside:
            quoted += 1
        elif _HEADING.match(line):
            headings += 1
        else:
            sentences += bool(line.strip())
    many = headings >= _LEAST_HEADINGS and blocks >= _LEAST_BLOCKS and sentences >= _LEAST_SENTENCES
    return many and quoted <= _MOST_PER_BLOCK * blocks
