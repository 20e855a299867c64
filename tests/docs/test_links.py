"""Every link between pages leads somewhere: to a file that exists, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def anchors(page: str) -> set[str]:
    """The headings of a page, as GitHub writes them into addresses."""
    headings = re.findall(r"^#+ +(.+)$", _FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> list[str]:
    found = []
    for link in _LINK.findall(_FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue  # other people's pages
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text() if path else text):
            found.append(f"{link}: there is no such heading")
        elif anchor and target.suffix == ".py" and f"def {anchor}(" not in target.read_text():
            found.append(f"{link}: there is no such function")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One & two!\n```\n# no heading\n```\n")
    (tmp_path / "t.py").write_text("def test_a(): ...")
    page = tmp_path / "a.md"
    text = (
        "## Here\n[1](b.md) [2](b.md#one--two) [3](c.md) [4](b.md#no-heading) [5](#here) [6](#there) [7](https://x/#y)"
        "\n[8](t.py#test_a) [9](t.py#test_b)"
    )
    page.write_text(text)
    assert broken(page, text) == [
        "c.md: there is no such file",
        "b.md#no-heading: there is no such heading",
        "#there: there is no such heading",
        "t.py#test_b: there is no such function",
    ]
