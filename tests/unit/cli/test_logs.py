from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tutti.cli.logs import start_logging
from tutti.errors import DeclarationError


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_the_event() -> None:
    stream = io.StringIO()
    start_logging("json", "info", stream)
    log = logging.getLogger("tutti.feed")
    log.debug("too quiet")
    log.warning("attempt %d failed", 2, extra={"event_id": "e-1", "event_type": "TradeDone", "odd": {1}})
    log.error("broken", exc_info=ValueError("why"), extra={"event_id": ""})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "logger": "tutti.feed",
        "message": "attempt 2 failed",
        "event_id": "e-1",
        "event_type": "TradeDone",
        "odd": [1],
    }
    assert "ValueError: why" in second["traceback"]
    assert "event_id" not in second


def test_text_lines_carry_it_too() -> None:
    stream = io.StringIO()
    start_logging("text", "warning", stream)
    logging.getLogger("tutti").info("no")
    logging.getLogger("tutti").warning("attempt failed", extra={"event_id": "e-1"})
    logging.getLogger("tutti").warning("attempt at e-1 failed", extra={"event_id": "e-1", "event_type": "Done"})
    first, second = stream.getvalue().splitlines()
    assert first.endswith("WARNING tutti: attempt failed event_id=e-1")
    assert second.endswith("WARNING tutti: attempt at e-1 failed event_type=Done")  # not said twice


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("text", "loud")])
def test_unknown_words_are_refused(form: str, level: str) -> None:
    with pytest.raises(DeclarationError, match="is unknown"):
        start_logging(form, level)
