"""Mails with their parts, outputs of notebooks, and what a reply quotes of something that is over."""

from __future__ import annotations

import json
from email.message import EmailMessage
from pathlib import Path
from zipfile import ZipFile

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, verdict_of

RAISED = (
    '[rank2]: Traceback (most recent call last):\n[rank2]:   File "t.py", line 9, in <module>\n[rank2]: ValueError: bad é\n'
)
LOST = "".join(
    f"[rank{rank}]: RuntimeError: [/g/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:4{rank}01\n" for rank in (0, 1, 3)
)


def mail(text: str, encoding: str = "quoted-printable", attached: dict[str, str] | None = None) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "jo@lab.example", "ops@lab.example", "job 7"
    message.set_content(text, cte=encoding)
    message.add_alternative(f"<html><body><pre>{text}</pre></body></html>", subtype="html")
    for name, content in (attached or {}).items():
        message.add_attachment(content.encode(), maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


def notebook(*cells: tuple[int | None, str, str]) -> bytes:
    """Cells with their number, source and output; one cell raised."""
    rows = [
        {
            "cell_type": "code",
            "execution_count": count,
            "source": [source],
            "outputs": [{"output_type": "stream", "text": [out]}],
        }
        for count, source, out in cells
    ]
    raised = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["\x1b[0;31mE\x1b[0m: x"]}
    shown = {"cell_type": "markdown", "source": ["# [rank5]: ValueError: not this"]}
    last = {"cell_type": "code", "execution_count": 99, "source": "", "outputs": [raised, 7, {"data": {"text/plain": ["1"]}}]}
    return json.dumps({"cells": [shown, *rows, last], "metadata": {}, "nbformat": 4}).encode()


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64"])
def test_a_mail_is_what_its_text_says(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "Re_ job 7.eml").write_bytes(mail(f"Hello,\n\n{RAISED}{LOST}\nJo\n", encoding))
    assert named(verdict_of(tmp_path)) == {2}
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT path FROM sources").fetchall() == [("Re_ job 7.eml/mail.txt",)]


def test_texts_that_are_attached_to_a_mail(tmp_path: Path) -> None:
    attached = {"rank_2.log": RAISED, "rank_0.log": LOST, "photo.png": "\x00"}
    (tmp_path / "a.eml").write_bytes(mail("See the files.\n", attached=attached))
    with open_case([tmp_path]) as case:
        paths = case.execute("SELECT path, rank FROM sources WHERE rank IS NOT NULL ORDER BY path").fetchall()
    assert paths == [("a.eml/mail.txt/rank_0.log", 0), ("a.eml/mail.txt/rank_2.log", 2)]


@pytest.mark.parametrize("name", ["train.ipynb", "train.json"])
def test_a_notebook_is_what_its_cells_printed(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(notebook((4, "!torchrun t.py", RAISED + LOST), (3, "x = 1", "1\n")))
    assert named(verdict_of(tmp_path)) == {2}


def test_a_cell_that_ran_again(tmp_path: Path) -> None:
    steps = "".join(f"step {at}/40 loss 2.{at}\n" for at in range(1, 41))
    cells = [(2, "!torchrun t.py", RAISED + LOST), (3, "!torchrun t.py", f"{steps}Training completed\n")]
    (tmp_path / "train.ipynb").write_bytes(notebook(*reversed(cells)))
    assert not named(verdict_of(tmp_path))


QUOTED = "".join(f"> {line}\n" for line in (RAISED + LOST).splitlines())


@pytest.mark.parametrize(
    ("said", "ranks"),
    [
        ("Closing this: the card was replaced and job 8 ran through.", set()),
        ("Solved last week by a new image.", set()),
        ("This was fixed, but job 8 died again:", {2}),
        ("Is this resolved?", {2}),
        ("The cable was replaced and it still hangs.", {2}),
        ("Could somebody have a look", {2}),
    ],
)
def test_what_a_reply_quotes_of_something_that_is_over(said: str, ranks: set[int], tmp_path: Path) -> None:
    (tmp_path / "reply.txt").write_text(f"{said}\n\nOn Mon, 2 Mar 2026 Jo wrote:\n{QUOTED}")
    (tmp_path / "empty.log").write_text("step 1 loss 2.0\n")
    assert named(verdict_of(tmp_path)) == ranks


def document(*paragraphs: str) -> str:
    rows = "".join(f'<w:p w:rsidR="1"><w:r><w:rPr/><w:t xml:space="preserve">{each}</w:t></w:r></w:p>' for each in paragraphs)
    return (
        f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:document xmlns:w="x"><w:body>{rows}</w:body></w:document>'
    )


def test_a_document_of_word(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "incident.docx", "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", document("Incident &amp; notes", *(RAISED + LOST).splitlines()))
    assert named(verdict_of(tmp_path)) == {2}


@pytest.mark.parametrize("version", [2, 3])
def test_a_recording_of_a_terminal(version: int, tmp_path: Path) -> None:
    shown = f"step 1 loss 2.0\n{RAISED}{LOST}".replace("\n", "\r\n")
    events = [[at, "o", shown[at : at + 40]] for at in range(0, len(shown), 40)]
    typed = [0.1, "i", "[rank5]: ValueError: typed\r\n"]
    lines = [json.dumps(each) for each in ({"version": version, "width": 80, "height": 24}, [0, "o", ""], typed, *events)]
    (tmp_path / "a.cast").write_text("\n".join(lines) + "\n")
    assert named(verdict_of(tmp_path)) == {2}


def test_hostile_documents_give_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(b'{"cells": [1, {"cell_type": "code", "outputs": 5}], "nbformat": 4}')
    (tmp_path / "b.ipynb").write_bytes(b'{"cells": ' + b"[" * 100_000)
    (tmp_path / "c.eml").write_bytes(b"MIME-Version: 1.0\nContent-Transfer-Encoding: base64\nContent-Type: x\n\n\xff\xfe=")
    (tmp_path / "d.log").write_text(RAISED + LOST)
    assert named(verdict_of(tmp_path)) == {2}
