"""House rules that no linter knows. Exceptions are lists in this file, each with its reason; one that is no longer
needed fails too, so the lists stay true."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "src" / "tutti"

FUNCTION_MAX_LINES: Final = 70  # a screen
MODULE_MAX_LINES: Final = 500  # beyond it a module holds two things

# Path under src/tutti, or path:function, and the reason.
LONG_FUNCTIONS: Final[dict[str, str]] = {}
LONG_MODULES: Final[dict[str, str]] = {
    "bus/embedded/supervisor.py": "it is run alone, by its path, and can import nothing of ours",
}

# Modules that have no test file of their own: where they are tested, and why there.
TESTED_ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "limits.py": ("tests/unit/test_tidy.py", "numbers; each is tested where it is enforced"),
    "bus/port.py": ("src/tutti/testing/contracts/__init__.py", "protocols; the contract suite is their test"),
    "resources/port.py": ("src/tutti/testing/contracts/resources.py", "protocols; the contract suite is their test"),
    "runtime/context.py": ("tests/unit/runtime/test_bus.py", "a record of what a bus shares; it does nothing itself"),
    **{
        f"bus/memory/{name}.py": (
            "tests/unit/bus/test_memory.py",
            "parts of one bus, tested as one; and by the contract",
        )
        for name in (
            "clock",
            "cluster",
            "messages",
            "queue",
            "reader",
            "stream",
            "subjects",
            "transport",
            "waiting",
            "wire",
        )
    },
    **{
        f"testing/contracts/{name}.py": (
            "tests/contracts/test_transports.py",
            "a suite of tests; it runs there on every transport",
        )
        for name in ("__init__", "append", "life", "queues", "reader", "servers", "state", "streams", "wire", "words")
    },
    **{
        f"testing/contracts/{name}.py": ("tests/contracts/test_journals.py", "a suite of tests; it runs there")
        for name in ("journal", "journal_words")
    },
    **{
        f"runtime/transactions/{name}.py": (
            "tests/unit/runtime/transactions/test_participant.py",
            "parts of one driver, each of which does nothing alone",
        )
        for name in ("bench", "operations", "site", "taking")
    },
    **{
        f"runtime/transactions/{name}.py": (
            "tests/unit/runtime/transactions/test_initiator.py",
            "parts of the manager's driver; a transaction with scripted members is their test",
        )
        for name in ("coordinator", "groups", "manager", "opening", "own", "successor", "trust")
    },
    **dict.fromkeys(
        (
            "control/transaction/sides.py",
            *(f"runtime/transactions/{part}.py" for part in ("hosting", "line", "managing")),
        ),
        ("tests/unit/runtime/transactions/test_remote.py", "a service and its publisher, on one wire"),
    ),
    **{
        f"journal/{name}.py": ("tests/contracts/test_journals.py", "what they promise is the contract of every journal")
        for name in ("deciding", "keeping", "outbox", "port", "records", "rows", "sql", "store")
    },
    **{
        f"{name}.py": (
            "tests/contracts/test_participant_logs.py",
            "what they promise is the contract of every such log",
        )
        for name in (
            "journal/participants",
            "journal/participants_sql",
            "journal/participating",
            "testing/contracts/participants",
        )
    },
}

# The simulator: its parts are tested alone where that says something, and together by the scenarios.
TESTED_ELSEWHERE.update(
    {
        f"simulation/{name}.py": ("tests/unit/simulation/test_simulation_run.py", reason)
        for name, reason in (
            ("control", "a driver: it does what machines say, and every scenario runs it"),
            ("member", "a driver, as control is"),
            ("operations", "part of a member: what it does to its database and its log"),
            ("publisher", "a driver, as control is"),
            ("workplace", "a record of what survives a subscriber's process"),
            ("world", "it puts the others together; a scenario is its test"),
        )
    }
    | {
        f"simulation/{name}.py": ("tests/unit/simulation/test_scenario.py", "data that a seed gives, drawn together")
        for name in ("faults", "workloads")
    }
    | {
        "simulation/facts.py": ("tests/unit/simulation/test_ledger.py", "values; the ledger enters every kind"),
    }
    | {
        f"simulation/checkers/{name}.py": (
            "tests/unit/simulation/test_simulation_checkers.py",
            "one transaction as it should be, and for every rule the facts that break it",
        )
        for name in (
            "agreement",
            "answers",
            "compensation",
            "counting",
            "ending",
            "exactly_once",
            "fencing",
            "heuristics",
            "invariant",
            "liveness",
            "membership",
            "stability",
            "strangers",
            "validity",
            "write_ahead",
        )
    }
)

# Modules whose test carries another name.
NAMED_OTHERWISE: Final[dict[str, str]] = {}

FORBIDDEN_MODULES: Final = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}
FORBIDDEN_CALLS: Final = {"eval", "exec", "compile"}

# Written so that they do not find themselves. Places of one machine, and indexes that packages came from.
_PLACES: Final = re.compile(r"(?<![\w.~$}])/(?:home|root|Users|work|opt)/[\w.-]|file:/[/]|C:[\\]Users")
_INDEXES: Final = re.compile(
    r"(?:extra-)?index[-_]url|find[-_]links|pythonhosted|pypi\.org[/]simple|/[s]imple/|artifactory|jfrog"
)
_DIRECTIVE: Final = re.compile(r"(noqa|type:\s*ignore)(:\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*|\[[\w\s,-]+\])?")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def tracked_files() -> list[Path]:
    """What belongs to the project: what git tracks, or everything but the ignored folders in an unpacked archive."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout  # noqa: S607  git from the PATH is the one the developer uses
    except (OSError, subprocess.CalledProcessError):
        ignored = {line.strip("/\n") for line in (ROOT / ".gitignore").read_text().splitlines()}
        return [path for path in ROOT.rglob("*") if path.is_file() and ignored.isdisjoint(path.relative_to(ROOT).parts)]
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def unsafe(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Loading that runs what it reads."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names if alias.name in FORBIDDEN_MODULES)
            case ast.ImportFrom(module=str(name)) if name in FORBIDDEN_MODULES:
                yield node.lineno, name
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield node.lineno, f"{name}()"
            case ast.Attribute(value=ast.Name(id="yaml"), attr="load" | "load_all" | "unsafe_load" as name):
                yield node.lineno, f"yaml.{name}"


def unexplained(source: str) -> Iterator[tuple[int, str]]:
    """Silenced findings without a code, or without a reason beside them or in a comment on the line above."""
    lines = source.splitlines()
    for item in tokenize.generate_tokens(io.StringIO(source).readline):
        found = _DIRECTIVE.search(item.string) if item.type == tokenize.COMMENT else None
        if not found or not re.match(
            r"#\s*(noqa|type:\s*ignore)", item.string[item.string.rfind("#", 0, found.start() + 1) :]
        ):
            continue
        line = item.start[0]
        above = lines[line - 2].strip() if line > 1 else ""
        rest = _DIRECTIVE.sub("", item.string)
        if not all(match.group(2) for match in _DIRECTIVE.finditer(item.string)):
            yield line, "names no code"
        elif not re.search(r"[^\W\d_]{3,}", rest) and not above.startswith("#"):
            yield line, "gives no reason"


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_MAX_LINES:
                yield node.name, lines


def has_code(tree: ast.Module) -> bool:
    """More than a docstring, imports and the list of public names."""
    declared = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    return any(not isinstance(node, declared) and not _is_text(node) for node in tree.body)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def places(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (_PLACES, _INDEXES):
            if found := pattern.search(line):
                yield number, found.group()


def test_nothing_runs_what_it_reads() -> None:
    _report(
        f"{_name(path)}:{line} {what}: never in Tutti, on the wire or at rest"
        for path in python_files("src")
        for line, what in unsafe(ast.parse(path.read_text()))
    )


def test_every_silenced_finding_says_which_and_why() -> None:
    _report(
        f"{_name(path)}:{line} {what}"
        for path in python_files("src", "tests", "benchmarks", "examples", "tools")
        for line, what in unexplained(path.read_text())
    )


def test_functions_fit_on_a_screen() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}:{name}": lines
        for path in python_files("src")
        for name, lines in long_functions(ast.parse(path.read_text()))
    }
    _report(f"{name} has {lines} lines" for name, lines in found.items() if name not in LONG_FUNCTIONS)
    _report(
        f"{name} is no longer too long: remove it from LONG_FUNCTIONS" for name in LONG_FUNCTIONS if name not in found
    )


def test_modules_hold_one_thing() -> None:
    sizes = {str(path.relative_to(PACKAGE)): path.read_text().count("\n") for path in python_files("src")}
    found = {name: lines for name, lines in sizes.items() if lines > MODULE_MAX_LINES}
    _report(f"{name} has {lines} lines" for name, lines in found.items() if name not in LONG_MODULES)
    _report(f"{name} is no longer too long: remove it from LONG_MODULES" for name in LONG_MODULES if name not in found)


def test_every_module_says_what_it_is() -> None:
    trees = {path: ast.parse(path.read_text()) for path in python_files("src")}
    _report(
        f"{_name(path)}:1 no docstring" for path, tree in trees.items() if tree.body and not ast.get_docstring(tree)
    )


def test_every_module_has_its_test() -> None:
    """`a/b.py` is tested by a `test_b.py` or `test_a_b.py` somewhere under tests/."""
    names = {path.name for path in python_files("tests")}
    modules = {
        str(path.relative_to(PACKAGE))
        for path in python_files("src")
        if path.stem != "__main__" and has_code(ast.parse(path.read_text()))
    }
    _report(
        f"{name} has no test file {' or '.join(sorted(_expected(name)))}; or say in this file where it is tested"
        for name in sorted(modules - TESTED_ELSEWHERE.keys())
        if names.isdisjoint(_expected(name))
    )
    _report(
        f"{name}: {place} does not exist"
        for name, (place, _) in TESTED_ELSEWHERE.items()
        if not (ROOT / place).exists()
    )
    exempt = TESTED_ELSEWHERE.keys() | NAMED_OTHERWISE.keys()
    _report(
        f"{name} does not exist: remove it from the exceptions" for name in exempt if not (PACKAGE / name).is_file()
    )


def _expected(name: str) -> set[str]:
    if name in NAMED_OTHERWISE:
        return {NAMED_OTHERWISE[name]}
    parts = Path(name).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return {f"test_{parts[-1] if parts else 'tutti'}.py", f"test_{'_'.join(parts)}.py"}


def test_no_place_of_one_machine_is_in_the_project() -> None:
    _report(
        f"{_name(path)}:{line} {what}"
        for path in tracked_files()
        if path != Path(__file__)
        for line, what in places(path.read_text(errors="replace"))
    )


@pytest.mark.parametrize(
    ("check", "source", "expected"),
    [
        (lambda s: unsafe(ast.parse(s)), "import pickle", [(1, "pickle")]),
        (lambda s: unsafe(ast.parse(s)), "from marshal import loads", [(1, "marshal")]),
        (lambda s: unsafe(ast.parse(s)), "x = 1\nexec('x')", [(2, "exec()")]),
        (lambda s: unsafe(ast.parse(s)), "yaml.load(x)", [(1, "yaml.load")]),
        (lambda s: unsafe(ast.parse(s)), "re.compile('x'); yaml.safe_load(x)", []),
        (unexplained, "x = 1  # noqa", [(1, "names no code")]),
        (unexplained, "x = 1  # noqa: S101", [(1, "gives no reason")]),
        (unexplained, "x = 1  # noqa: S101, PLR2004  a fixed port of the protocol", []),
        (unexplained, "x = 1  # type: ignore", [(1, "names no code")]),
        (unexplained, "x = 1  # type: ignore[arg-type]", [(1, "gives no reason")]),
        (unexplained, "x = 1  # type: ignore[arg-type]  # the stub forgets None", []),
        (unexplained, "# the stub forgets None\nx = 1  # type: ignore[arg-type]", []),
        (unexplained, "x = '# noqa'  # a comment about noqa", []),
        (lambda s: long_functions(ast.parse(s)), "def f():\n" + " x = 1\n" * 69, []),
        (lambda s: long_functions(ast.parse(s)), "async def f():\n" + " x = 1\n" * 70, [("f", 71)]),
        (places, "see /" + "home/ada/tutti", [(1, "/" + "home/a")]),
        (places, "--extra-index" + "-url x", [(1, "extra-index" + "-url")]),
        (places, "under ~/work/x and $HOME/opt/y and a/root/b", []),
    ],
)
def test_each_rule_can_fail(check: Callable[[str], Iterator[object]], source: str, expected: list[object]) -> None:
    assert list(check(source)) == expected


def test_a_module_of_imports_needs_no_test() -> None:
    assert not has_code(ast.parse('"""Text."""\nfrom a import b\n__all__ = ["b"]'))
    assert has_code(ast.parse("def f(): ..."))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _report(found: Iterator[str]) -> None:
    lines = list(found)
    assert not lines, "\n" + "\n".join(lines)
