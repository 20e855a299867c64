"""The fixture `tutti_bus`, as users get it: by installing Tutti."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tutti.testing.kit import BusKit

USED = """
import pytest
import tutti

class Step(tutti.Event):
    number: int

@pytest.mark.parametrize("number", [1, 2])
async def test_it_is_open_and_new_every_time(tutti_bus, number):
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event): ...

    assert await tutti_bus.types() == []
    await tutti_bus.advertise(Step)
    async with tutti_bus.serve(app):
        await tutti_bus.publish(Step(number))
        await tutti_bus.settle()
    assert tutti_bus.handled(step) == [Step(number)]
    KEPT.append(tutti_bus)

def test_it_is_closed_afterwards():
    assert len(KEPT) == 2
    for bus in KEPT:
        with pytest.raises(tutti.DeclarationError, match="not open"):
            bus.context

KEPT = []
"""

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

WITHOUT = """
import sys
sys.modules["pytest_asyncio"] = None
from tutti.testing import plugin
assert not hasattr(plugin, "tutti_bus")
"""

LAZY = """
import sys
from tutti.testing import plugin
assert hasattr(plugin, "tutti_bus")
assert "tutti.testing.kit" not in sys.modules
"""


def python(folder: Path, *arguments: str) -> str:
    """What a Python of its own prints, if it ends well."""
    ran = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_project_that_names_no_plugin_has_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_used.py").write_text(USED)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    assert "3 passed" in python(tmp_path, "-m", "pytest", "-pno:cacheprovider", "test_used.py")


def test_without_pytest_asyncio_there_is_no_fixture_and_no_error(tmp_path: Path) -> None:
    python(tmp_path, "-c", WITHOUT)


def test_who_does_not_ask_for_it_does_not_load_the_kit(tmp_path: Path) -> None:
    python(tmp_path, "-c", LAZY)


async def test_here_too_it_is_an_open_bus(tutti_bus: BusKit) -> None:
    assert tutti_bus.health().state == "ok"
