"""The reader and the runner of pages, on made-up pages: they must be able to fail, and say where."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.docs.markdown import Block, WrongPage, blocks, commands, missing
from tests.docs.test_pages import Page, run_page


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(text)
    return path


def run(folder: Path, text: str) -> Page:
    with asyncio.Runner() as runner:
        page = Page(written(folder, text), runner)
        run_page(page)
    return page


def test_blocks_know_their_language_line_and_wish(folder: Path) -> None:
    text = (
        "# Title\n\n```python\nx = 1\n```\n\n<!-- not run: needs a cluster -->\n\n```python\ny\n```\n"
        "\n- item\n\n  ```console\n  $ ls\n  ```\n"
    )
    assert blocks(written(folder, text)) == [
        Block("python", 4, "x = 1\n"),
        Block("python", 10, "y\n", "not run", "needs a cluster"),
        Block("console", 16, "$ ls\n"),
    ]


def test_a_comment_counts_only_right_before_its_fence(folder: Path) -> None:
    text = "<!-- run -->\nBut first:\n```python\nx\n```\n"
    assert blocks(written(folder, text))[0].wish == ""


@pytest.mark.parametrize(
    "text", ["```python\nx = 1\n", "<!-- not run -->\n```python\n```\n", "<!-- file: ../x.py -->\n```python\n```\n"]
)
def test_a_malformed_page_is_refused_with_its_line(folder: Path, text: str) -> None:
    with pytest.raises(WrongPage, match=r"page\.md:\d "):
        blocks(written(folder, text))


def test_blocks_share_a_namespace_and_a_loop(folder: Path) -> None:
    page = run(
        folder,
        "```python\nimport asyncio\nasync def f(): return 2\nawait f()\nloop = asyncio.get_running_loop()\n```\n"
        "```python\nasync with asyncio.timeout(1):\n    same = loop is asyncio.get_running_loop()\n```\n"
        "```python\nother = asyncio.run(f())\n```\n",
    )
    assert page.module.__dict__["same"] is True
    assert page.module.__dict__["other"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n```python\nx = 1\nassert x == 2, 'two'\n```\n", r"page\.md:4 (?s:.*)AssertionError: two"),
        ("\n```python\nx = 1\n1 / 0\n```\n", r"page\.md:4 (?s:.*)ZeroDivisionError"),
        ("```python\ndef f(): raise ValueError\n```\n```python\nawait f()\n```\n", r"page\.md:2 (?s:.*)ValueError"),
        ("<!-- not run: a reason -->\n```python\nx = = 1\n```\n", r"page\.md:3 (?s:.*)SyntaxError"),
        ("```python\nraise SystemExit(1)\n```\n", r"page\.md:2 (?s:.*)SystemExit"),
        ("<!-- run -->\n```console\n$ echo one\n$ exit 3\n```\n", r"page\.md:4 exit 3 from: exit 3"),
        (
            "<!-- run -->\n```console\n$ echo one\ntwo\n```\n",
            r"page\.md:3 the page shows 'two', the command printed:\none",
        ),
        ("<!-- run -->\n```python\n```\n<!-- run -->\n```text\n```\n", r"page\.md:6 'run' does not go with 'text'"),
    ],
)
def test_a_failing_block_is_reported_with_its_line(folder: Path, text: str, message: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=message):
        run(folder, text)


def test_what_is_not_run_has_no_effect(folder: Path) -> None:
    page = run(
        folder, "<!-- not run: it would fail -->\n```python\nx = 1 / 0\n```\n```console\n$ false\n```\n```text\n```\n"
    )
    assert "x" not in page.module.__dict__


def test_files_and_commands_share_the_folder(folder: Path) -> None:
    run(
        folder,
        "<!-- file: hello.py -->\n```python\nprint('hello', 'you')\n```\n"
        "<!-- run -->\n```console\n$ python hello.py\nhello   you\n$ cat hello.py\n…\n```\n",
    )


def test_commands_carry_the_output_below_them() -> None:
    block = Block("console", 10, "$ tutti types ls\nname  version\n…\n\n$ tutti doctor\n", "run")
    assert [(c.line, c.text, c.expected) for c in commands(block)] == [
        (10, "tutti types ls", ("name  version", "…")),
        (14, "tutti doctor", ()),
    ]


@pytest.mark.parametrize(
    ("expected", "output", "absent"),
    [
        (("a", "c"), "a\nb\nc", None),
        (("c", "a"), "a\nb\nc", "a"),
        (("took … ms",), "took 12.5 ms", None),
        (("…", "b"), "a\nb", None),
        (("…",), "", None),
        (("x",), "xy", "x"),
    ],
)
def test_missing(expected: tuple[str, ...], output: str, absent: str | None) -> None:
    assert missing(expected, output) == absent
