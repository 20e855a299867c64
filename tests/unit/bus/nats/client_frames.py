"""What a NATS client sent, as values: the servers' half of the protocol, for tests."""

from __future__ import annotations

import re
from typing import NamedTuple

from tutti.bus.nats.protocol import fields_of


class Sent(NamedTuple):
    """A command; `subject` is empty for CONNECT, PING and PONG."""

    verb: str
    subject: str = ""
    reply: str = ""
    sid: str = ""
    fields: dict[str, str] = {}  # noqa: RUF012  a tuple's default, never changed
    data: bytes = b""


_LINE = re.compile(rb"([A-Z]+)(?: ([^\r\n]*))?\r\n")


def commands(stream: bytes) -> tuple[list[Sent], bytes]:
    """The complete commands, and what is left."""
    found: list[Sent] = []
    while line := _LINE.match(stream):
        verb = line[1].decode()
        words = (line[2] or b"").decode().split()
        end = line.end()
        match verb:
            case "PUB" | "HPUB":
                total = int(words[-1])
                head = int(words[-2]) if verb == "HPUB" else 0
                if len(stream) < end + total + 2:
                    break
                names = words[: -2 if verb == "HPUB" else -1]
                body = stream[end : end + total]
                reply = names[1] if len(names) > 1 else ""
                found.append(Sent("PUB", names[0], reply, fields=fields_of(body[:head]), data=body[head:]))
                end += total + 2
            case "SUB":
                found.append(Sent("SUB", words[0], sid=words[-1]))
            case "UNSUB":
                found.append(Sent("UNSUB", sid=words[0]))
            case _:
                found.append(Sent(verb, data=(line[2] or b"")))
        stream = stream[end:]
    return found, stream
