# SPDX-License-Identifier: Apache-2.0
"""A request's body: read within a limit, decoded into its schema, every refusal naming the field.

Three kinds of fields come in: those of the schema, those we know and do not implement (refused
unless their value asks for nothing), and those nobody knows (ignored, with one debug line).
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from tokenlight.base.errors import BodyTooLarge, InvalidRequest, UnsupportedParameter
from tokenlight.base.log import event, get_log
from tokenlight.base.surrogates import replace_lone_surrogates_in_bytes
from tokenlight.server.schemas.describe import allowed_at, names_at, shown, value_at
from tokenlight.server.schemas.unsupported import Unsupported, fields_of

_Body = TypeVar("_Body", bound=msgspec.Struct)

_log = get_log("server")


# Other values (utf-8, identity) are slips of clients whose bodies can be read.
_COMPRESSIONS = frozenset({"gzip", "x-gzip", "deflate", "br", "zstd", "compress", "x-compress"})


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLarge: it says so, or turns out so; the rest is not read.
        InvalidRequest: it is compressed.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)
    parts: list[bytes] = []
    num_bytes = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        num_bytes += len(part)
        if num_bytes > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            break
    coding = request.headers.get("content-encoding", "").strip().lower()
    if _COMPRESSIONS.intersection(re.split(r"[\s,]+", coding)):
        raise InvalidRequest(
            f"the body came with content-encoding {coding!r}, but this server reads bodies as they "
            f"are; send it uncompressed, without that header"
        )
    return b"".join(parts)


def decode_body(
    data: bytes, schema: type[_Body], unsupported: dict[str, Unsupported] | None = None
) -> _Body:
    """JSON bytes as `schema`.

    Args:
        data: the body.
        schema: what it must be; ranges are declared there.
        unsupported: fields that are known and not implemented.

    Raises:
        InvalidRequest: not JSON, or not of the schema.
        UnsupportedParameter: a known field asks for what we do not implement.
    """
    body = _decode_json(data)
    if unsupported:
        for name, field in unsupported.items():
            if name in body and not field.allows(body[name]):
                raise UnsupportedParameter(name, advice=field.advice)
    unknown = body.keys() - fields_of(schema) - (unsupported or {}).keys()
    if unknown:
        _log.debug(event("unknown_fields_ignored", fields=",".join(sorted(unknown)[:16])))
    try:
        return msgspec.convert(body, schema, strict=True)
    except msgspec.ValidationError as error:
        raise _invalid(error, body, schema) from None
    except RecursionError:
        raise _too_deep() from None


def _decode_json(data: bytes) -> dict[str, Any]:
    try:
        body = _loads(data)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body has a value that cannot be used: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"the body is not valid JSON in UTF-8: {error}; send one JSON object"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(body, dict):
        raise InvalidRequest(
            f"the body must be a JSON object, got {shown(body)}; see /openapi.json"
        )
    return body


def _loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        mended = replace_lone_surrogates_in_bytes(data)
        if mended == data:
            raise
        return msgspec.json.decode(mended)


def _too_deep() -> InvalidRequest:
    return InvalidRequest("the body nests deeper than this server reads (about 900 levels)")


_EXTRA = re.compile(r"contains unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")


def _invalid(
    error: msgspec.ValidationError, body: object, schema: type[msgspec.Struct]
) -> InvalidRequest:
    """Say in our words what msgspec found: which field, what is allowed, what was sent."""
    text, _, path = str(error).partition(" - at `$")
    param = path.rstrip("`").removeprefix(".")
    if missing := _MISSING.search(text):
        name = ".".join(filter(None, [param, missing["name"]]))
        return InvalidRequest(f"{name!r} is required and missing; send it", param=name)
    if extra := _EXTRA.search(text):
        return InvalidRequest(
            f"{param!r} has no field {extra['name']!r}; it may have "
            f"{', '.join(names_at(schema, param))}",
            param=f"{param}.{extra['name']}",
        )
    allowed = allowed_at(schema, param)
    if param.endswith("[...]"):  # msgspec does not say which of an object's values
        name = param.removesuffix("[...]")
        return InvalidRequest(f"each value of {name!r} must be {allowed}", param=name)
    return InvalidRequest(
        f"{param!r} must be {allowed}, got {shown(value_at(body, param))}"
        if allowed
        else f"{param!r} cannot be used: {text}",
        param=param or None,
    )
