"""The advertised types as an AsyncAPI 3.0 document: what is published, where, and what it looks like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tutti.errors import DeclarationError
from tutti.limits import PARTITIONS_COUNT
from tutti.model import attributes
from tutti.model.advertisement import Advertisement
from tutti.model.envelope import JSON
from tutti.model.subjects import NO_TRANSACTION, Layout, token

_PARTITION: Final = "partition-number"  # with a hyphen: no field can be called so
_TRAIT: Final = "cloudEvent"
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9._-]").sub


def asyncapi(
    advertisements: Iterable[Advertisement],
    *,
    title: str,
    version: str = "1.0.0",
    description: str | None = None,
    servers: Mapping[str, str] | None = None,
    layout: Layout | None = None,
) -> dict[str, Any]:
    """The document, ready for JSON or YAML. `servers` maps names to URLs such as `nats://host:4222`."""
    types = {_component_name(known.type): known for known in sorted(advertisements, key=lambda known: known.type)}
    schemas: dict[str, Any] = {}
    for name, known in types.items():
        schemas.update(_schemas(name, known.schema))
    info = {"title": title, "version": version} | ({"description": description} if description else {})
    document: dict[str, Any] = {"asyncapi": "3.0.0", "info": info, "defaultContentType": JSON}
    if servers:
        document["servers"] = {name: _server(url) for name, url in servers.items()}
    document["channels"] = {name: _channel(name, known, layout or Layout()) for name, known in types.items()}
    document["operations"] = {
        f"{verb}.{name}": _operation(action, name) for name in types for verb, action in _OPERATIONS.items()
    }
    document["components"] = {
        "messages": {name: _message(name, known) for name, known in types.items()},
        "schemas": schemas,
        "messageTraits": {_TRAIT: _cloudevent_trait()},
    }
    return document


_OPERATIONS: Final = {"publish": "send", "handle": "receive"}


def _component_name(type_name: str) -> str:
    """Type names may hold what AsyncAPI's names may not; a subject token of the name tells such names apart."""
    plain = _UNNAMEABLE("_", type_name)
    return plain if plain == type_name else _UNNAMEABLE("_", token(type_name))


def _server(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if not parts.scheme or not parts.hostname:
        raise DeclarationError(f"{url!r} is no address of a server", hint="write it as nats://host:4222")
    host = parts.netloc.rpartition("@")[2]  # never the user and password
    return {"host": host, "protocol": parts.scheme}


def _channel(name: str, known: Advertisement, layout: Layout) -> dict[str, Any]:
    routing = tuple(f"{{{attribute.name}}}" for attribute in known.routing)
    partition = f"{{{_PARTITION}}}"
    if known.grade == "best_effort":
        address = layout.live(token(known.type), NO_TRANSACTION, partition, routing)
    else:
        address = layout.event(known.stream, token(known.type), NO_TRANSACTION, partition, routing)
    parameters: dict[str, Any] = {
        _PARTITION: {
            "description": f"Computed by the publisher from {f'the key {known.key}' if known.key else 'its name'}.",
            "enum": [str(number) for number in range(PARTITIONS_COUNT)],
        }
    }
    for attribute in known.routing:
        parameters[attribute.name] = {
            "description": f"The field {attribute.name} ({attribute.kind}), encoded as a subject token.",
            "location": f"$message.payload#/{attribute.name}",
        }
    return {
        "address": address,
        "title": known.type,
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "parameters": parameters,
    }


def _operation(action: str, name: str) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{name}"},
        "messages": [{"$ref": f"#/channels/{name}/messages/{name}"}],
    }


def _message(name: str, known: Advertisement) -> dict[str, Any]:
    return {
        "name": known.type,
        "title": f"{known.type}, version {known.version}",
        "contentType": JSON,
        "payload": {"$ref": f"#/components/schemas/{name}"},
        "traits": [{"$ref": f"#/components/messageTraits/{_TRAIT}"}],
        "x-tutti": {
            "version": known.version,
            "grade": known.grade,
            "key": known.key,
            "lifetime": known.lifetime,
            "priority": known.priority,
        },
    }


def _cloudevent_trait() -> dict[str, Any]:
    """The headers of CloudEvents' binary mode."""
    text = {"type": "string"}
    moment = {"type": "string", "format": "date-time"}
    required = {"ce-specversion": {"type": "string", "const": attributes.SPECVERSION}} | {
        f"ce-{name}": {"type": "string", "minLength": 1} for name in ("id", "source", "type")
    }
    optional = {
        "time": moment,
        "datacontenttype": text,
        "subject": text,
        attributes.SEQUENCE: text,
        attributes.PARTITION_KEY: text,
        attributes.EXPIRY: moment,
        attributes.PRIORITY: text,
        attributes.TRACEPARENT: text,
        attributes.TRACESTATE: text,
    }
    properties = required | {f"ce-{name}": schema for name, schema in optional.items()}
    return {"headers": {"type": "object", "required": list(required), "properties": properties}}


def _schemas(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type as components: the type under its own name, its parts under `<type>.<part>`."""
    parts: dict[str, Any] = schema.get("$defs", {})
    top = schema.get("$ref", "").removeprefix("#/$defs/")
    names = {part: name if part == top else f"{name}.{_UNNAMEABLE('_', part)}" for part in parts}
    return {names[part]: _converted(content, names) for part, content in parts.items()}


def _converted(schema: Any, names: dict[str, str]) -> Any:
    """From JSON Schema 2020-12, as advertised, to AsyncAPI's own dialect, which is based on draft 07."""
    if isinstance(schema, list):
        return [_converted(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": f"#/components/schemas/{names[schema['$ref'].removeprefix('#/$defs/')]}"}
    converted: dict[str, Any] = {}
    for keyword, content in schema.items():
        match keyword:
            case "discriminator":
                converted[keyword] = content["propertyName"]
            case "prefixItems":
                converted["items"] = _converted(content, names)
            case "items" if "prefixItems" in schema:
                converted["additionalItems"] = content
            case "properties":
                converted[keyword] = {field: _converted(part, names) for field, part in content.items()}
            case "default" | "enum" | "const" | "required" | "examples":
                converted[keyword] = content  # values, not schemas
            case _:
                converted[keyword] = _converted(content, names)
    return converted
