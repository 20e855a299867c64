"""Every page's code runs: its blocks in order, in one namespace, one event loop and one empty data folder."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.docs.markdown import Block, WrongPage, blocks, commands, missing

ROOT: Final = Path(__file__).parents[2]
COMMAND_MAX_SECONDS: Final = 60


def pages() -> list[Path]:
    """README and the documentation. Decision records quote code as it was, so they are left alone."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(path for path in found if ROOT / "docs" / "adr" not in path.parents and _has_code(path))


def _has_code(path: Path) -> bool:
    return any(block.language == "python" or block.wish for block in blocks(path))


class Page:
    """The world in which the blocks of one page run."""

    def __init__(self, path: Path, runner: asyncio.Runner) -> None:
        self.path = path
        self.runner = runner
        # A real module: msgspec and dataclasses look annotations up in sys.modules.
        self.module = ModuleType(f"page_{path.stem.replace('-', '_').lower()}")

    def run(self, block: Block) -> None:
        match block.language, block.wish:
            case "python", "not run":
                self._compiled(block)
            case "python", "file":
                self._compiled(block)
                Path(block.value).write_text(block.code)
            case "python", _:
                self._execute(block)
            case "console", "run":
                self._run_commands(block)
            case _, "":
                pass
            case language, wish:
                raise WrongPage(f"{self.path}:{block.line} {wish!r} does not go with {language!r}")

    def _compiled(self, block: Block) -> object:
        """The code with the page's own line numbers, so that a traceback points into the page."""
        source = "\n" * (block.line - 1) + block.code
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(source, str(self.path), "exec", flags=flags, dont_inherit=True)

    def _execute(self, block: Block) -> None:
        code = self._compiled(block)
        # Without `await` there is no running loop, so pages may show asyncio.run() and the blocking API too.
        result = eval(code, self.module.__dict__)  # type: ignore[arg-type]  # noqa: S307  our own documentation; compile() hides its type
        if inspect.iscoroutine(result):
            self.runner.run(result)

    def _run_commands(self, block: Block) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        for command in commands(block):
            ran = subprocess.run(
                ["/bin/sh", "-c", command.text],
                env=os.environ | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "200"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=COMMAND_MAX_SECONDS,
                check=False,
            )
            where = f"{self.path}:{command.line}"
            if ran.returncode:
                raise WrongPage(f"{where} exit {ran.returncode} from: {command.text}\n{ran.stdout}")
            if absent := missing(command.expected, ran.stdout):
                raise WrongPage(f"{where} the page shows {absent!r}, the command printed:\n{ran.stdout}")


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setenv("TUTTI_DATA", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(tmp_path / "work"))
    before = set(sys.modules)
    with asyncio.Runner() as runner:
        page = Page(request.param, runner)
        monkeypatch.setitem(sys.modules, page.module.__name__, page.module)
        yield page
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def run_page(page: Page) -> None:
    for block in blocks(page.path):
        try:
            page.run(block)
        except WrongPage as error:
            pytest.fail(str(error), pytrace=False)
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a page's code raises is the finding
            told = "".join(traceback.format_exception(error))
            pytest.fail(f"{page.path}:{_line(page, block, error)} {told}", pytrace=False)


def _line(page: Page, block: Block, error: BaseException) -> int:
    """The innermost line of the page in the traceback; of the block where there is none."""
    if isinstance(error, SyntaxError) and error.filename == str(page.path):
        return error.lineno or block.line
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(page.path)]
    return lines[-1] or block.line if lines else block.line


@pytest.mark.parametrize(
    "page", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in pages()], indirect=True
)
def test_page(page: Page) -> None:
    run_page(page)
