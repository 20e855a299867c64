from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tutti.cli.loading import load, load_all, load_type
from tutti.errors import DeclarationError

SOURCE = """
import tutti
one = tutti.Subscriber("one")
same = tutti.Subscriber("one")
class Group:
    inner = tutti.Subscriber("inner")
other = 5
class Done(tutti.Event):
    number: int
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("loading_good", "loading_bad"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("loading_good.py").write_text(SOURCE)


def test_a_subscriber_is_found_in_the_current_folder() -> None:
    assert load("loading_good:one").name == "one"
    assert load("loading_good:Group.inner").name == "inner"


@pytest.mark.parametrize(
    ("place", "what", "hint"),
    [
        (":one", "names no subscriber", "module:subscriber"),
        ("loading_good", "names no subscriber", "loading_good:one, loading_good:same"),
        ("loading_good:", "names no subscriber", "loading_good:one"),
        ("loading_good.py:one", "loading_good.py is a file", "did you mean loading_good:one?"),
        ("./shop/desk.py", "./shop/desk.py is a file", "did you mean shop.desk?"),
        ("loading_good:Done", "loading_good:Done is an event type, no Subscriber", "loading_good:one"),
        ("loading_good:nobody", "module loading_good has no attribute nobody", "loading_good:one, loading_good:same"),
        ("loading_good:other", "loading_good:other is a int, no Subscriber", "loading_good:one"),
        ("loading_none:x", "there is no module loading_none", "looked in"),
    ],
)
def test_what_is_not_there_is_explained(place: str, what: str, hint: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        load(place)
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_type_is_found() -> None:
    assert load_type("loading_good:Done").__name__ == "Done"


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("loading_good", "names no type"),
        ("loading_good:one", "loading_good:one is a Subscriber, no event type"),
        ("loading_good:other", "loading_good:other is a int, no event type"),
        ("loading_good:Gone", "module loading_good has no attribute Gone"),
    ],
)
def test_what_is_no_type_is_explained(place: str, what: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        load_type(place)
    assert what in caught.value.what
    assert caught.value.hint == "its event types are loading_good:Done"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import loading_missing", "ModuleNotFoundError: No module named 'loading_missing' (loading_bad.py, line 1)"),
        ("\n1 / 0", "ZeroDivisionError: division by zero (loading_bad.py, line 2)"),
        ("x = (", "SyntaxError: '(' was never closed (loading_bad.py, line 1)"),
    ],
)
def test_a_module_that_does_not_import_says_where(source: str, what: str) -> None:
    Path("loading_bad.py").write_text(source)
    with pytest.raises(DeclarationError) as caught:
        load("loading_bad:x")
    assert caught.value.what == f"module loading_bad does not import: {what}"


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(DeclarationError, match="two of the subscribers are called 'one'"):
        load_all(("loading_good:one", "loading_good:same"))
