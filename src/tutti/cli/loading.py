"""`module:subscriber` → the `Subscriber` that it names; `module:Type` → the class of events."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Final

from tutti.errors import DeclarationError
from tutti.model.event import Event, event_type
from tutti.resources import Resource
from tutti.runtime.subscriber import Subscriber


def load(place: str) -> Subscriber:
    """Import from the current folder first, as `python -m` does."""
    module, path, found = _found(place, _SUBSCRIBER)
    if isinstance(found, Subscriber):
        return found
    if _declares_events(found):
        raise DeclarationError(f"{place} is an event type, no Subscriber", hint=_candidates(module))
    raise _other(module, path, found, wanted="no Subscriber", hint=_candidates(module))


def load_type(place: str) -> type:
    """`module:Type` → the class of events that it names."""
    module, path, found = _found(place, _TYPE)
    if isinstance(found, Subscriber):
        raise DeclarationError(f"{place} is a Subscriber, no event type", hint=_type_candidates(module))
    if isinstance(found, type):
        event_type(found)  # says why it is none
        return found
    raise _other(module, path, found, wanted="no event type", hint=_type_candidates(module))


def load_resources(places: Sequence[str]) -> list[Resource[Any]]:
    """`module:resource` → the databases that it names."""
    found: list[Resource[Any]] = []
    for place in places:
        module, path, value = _found(place, _RESOURCE)
        if not isinstance(value, Resource):
            raise _other(module, path, value, wanted="no resource", hint=_resource_candidates(module))
        found.append(value)
    return found


_SUBSCRIBER: Final = ("subscriber", "desk:desk")
_RESOURCE: Final = ("resource", "shop:orders")
_TYPE: Final = ("type", "desk:TradeDone")


def _found(place: str, kind: tuple[str, str]) -> tuple[ModuleType, str, object]:
    module_name, _, path = place.partition(":")
    _refuse_file(module_name, path)
    if not module_name:
        raise _names_none(place, kind, "")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _imported(module_name)
    if not path:
        candidates = {_SUBSCRIBER: _candidates, _TYPE: _type_candidates, _RESOURCE: _resource_candidates}[kind]
        raise _names_none(place, kind, candidates(module))
    found: object = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return module, path, found


def _refuse_file(module: str, path: str) -> None:
    """`shop.py:fraud` is a file where a module is wanted."""
    if module.endswith(".py") or "/" in module:
        parts = PurePosixPath(module.removesuffix(".py")).parts
        name = ".".join(part for part in parts if part not in {".", "/"})
        raise DeclarationError(
            f"{module} is a file, not a module", hint=f"did you mean {name}{':' if path else ''}{path}?"
        )


def _names_none(place: str, kind: tuple[str, str], candidates: str) -> DeclarationError:
    return DeclarationError(
        f"{place!r} names no {kind[0]}", hint=candidates or f"write module:{kind[0]}, as in {kind[1]}"
    )


def _other(module: ModuleType, path: str, found: object, *, wanted: str, hint: str) -> DeclarationError:
    if found is None:
        return DeclarationError(f"module {module.__name__} has no attribute {path}", hint=hint)
    return DeclarationError(f"{module.__name__}:{path} is a {type(found).__name__}, {wanted}", hint=hint)


def _declares_events(found: object) -> bool:
    if not isinstance(found, type):
        return False
    try:
        event_type(found)
    except DeclarationError:
        return False
    return True


def load_all(places: tuple[str, ...]) -> list[Subscriber]:
    subscribers = [load(place) for place in places]
    names = [subscriber.name for subscriber in subscribers]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"two of the subscribers are called {name!r}",
                hint="name each once: instances that share the work are processes of their own",
            )
    return subscribers


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise DeclarationError(
                f"there is no module {name}", hint=f"looked in {Path.cwd()} and where Python finds its packages"
            ) from error
        raise _does_not_import(name, error) from error
    except Exception as error:
        raise _does_not_import(name, error) from error


def _does_not_import(name: str, error: Exception) -> DeclarationError:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in own if frame.filename != __file__]
    where = f" ({os.path.relpath(own[-1].filename)}, line {own[-1].lineno})" if own else ""
    if isinstance(error, SyntaxError) and error.filename:
        where = f" ({os.path.relpath(error.filename)}, line {error.lineno})"
    said = error.msg if isinstance(error, SyntaxError) else error
    return DeclarationError(
        f"module {name} does not import: {type(error).__name__}: {said}{where}",
        hint="--debug shows the whole traceback",
    )


def _candidates(module: ModuleType) -> str:
    found = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, Subscriber)]
    if found:
        return f"its subscribers are {', '.join(found)}"
    return f'{module.__name__} has no subscribers: declare one with desk = tutti.Subscriber("desk")'


def _resource_candidates(module: ModuleType) -> str:
    found = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, Resource)]
    if found:
        return f"its resources are {', '.join(found)}"
    return f"{module.__name__} has no resources: declare one as a PostgresResource or another one"


def _type_candidates(module: ModuleType) -> str:
    own = [name for name, value in vars(module).items() if _declares_events(value) and value is not Event]
    if own:
        return f"its event types are {', '.join(f'{module.__name__}:{name}' for name in own)}"
    return f"{module.__name__} has no event types: declare one with class TradeDone(tutti.Event)"
