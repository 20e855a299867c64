"""Structured logs: a line for each record, with the event's id where the record has one."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from tutti.errors import DeclarationError

LEVELS: Final = ("debug", "info", "warning", "error")
FORMS: Final = ("text", "json")
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(form: str, level: str, stream: TextIO | None = None) -> None:
    """From now on, whatever is logged in this process goes to the standard error in this form."""
    if form not in FORMS:
        raise DeclarationError(f"--log {form} is unknown", hint=f"use {' or '.join(FORMS)}")
    if level not in LEVELS:
        raise DeclarationError(f"--log-level {level} is unknown", hint=f"use {', '.join(LEVELS)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


class JsonLines(logging.Formatter):
    """One JSON object a record: time, level, logger, message, and every `extra` field under its own name."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": _moment(record, "microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extras(record),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(said, enc_hook=str).decode()


class TextLines(logging.Formatter):
    """`12:00:01.123 WARNING tutti.feed: … event_id=…`, where the message does not name the event anyway."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        said = {
            name: value for name, value in extras(record).items() if name != "event_id" or str(value) not in message
        }
        fields = "".join(f" {name}={value}" for name, value in said.items())
        line = f"{_moment(record)[11:23]} {record.levelname} {record.name}: {message}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def extras(record: logging.LogRecord) -> dict[str, object]:
    """What the caller said beside the message. Empty values say nothing."""
    return {name: value for name, value in vars(record).items() if name not in _USUAL and value not in ("", None)}


def _moment(record: logging.LogRecord, precision: str = "milliseconds") -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
