"""What a message may look like, and how much room it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tutti.errors import Refused

MESSAGE_ID: Final = "Nats-Msg-Id"

_HEADER_NAME: Final = re.compile(r"[!-9;-~]+").fullmatch  # visible ASCII without the colon
_BREAKS_HEADER: Final = re.compile(r"[\r\n\x00]").search


def check_message(subject: str, headers: Mapping[str, str], data: bytes, max_payload: int) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME(name) or _BREAKS_HEADER(value):
            raise Refused(
                f"header {name!r}: {value!r} on {subject!r} cannot be sent",
                hint="names are visible ASCII without ':', values any text without CR, LF and NUL",
            )
    size = size_of(headers, data)
    if size > max_payload:
        raise Refused(
            f"message on {subject!r} has {size} bytes, the server takes {max_payload}",
            hint="store large content elsewhere and send a reference",
        )


def size_of(headers: Mapping[str, str], data: bytes) -> int:
    """What a message has on the wire: `name: value CR LF` for each header, and the data."""
    size = len(data)
    for name, value in headers.items():
        size += len(name) + 4 + (len(value) if value.isascii() else len(_utf8(name, value)))
    return size


def _utf8(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"header {name!r}: {value!r} is not text", hint="remove the lone surrogates") from error
