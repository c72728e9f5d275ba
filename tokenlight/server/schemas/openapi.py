# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, made from the endpoints and the structs that validate them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tokenlight import __version__
from tokenlight.server.errors import ErrorResponse
from tokenlight.server.schemas.endpoint import Endpoint, Schema

_REF = "#/components/schemas/{name}"


def openapi_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """OpenAPI 3.1, as plain data."""
    listed = list(endpoints)
    structs: list[Schema] = [ErrorResponse]
    for endpoint in listed:
        structs += [s for s in (endpoint.request, endpoint.response, endpoint.event) if s]
    unique = list(dict.fromkeys(structs))
    references, components = msgspec.json.schema_components(unique, ref_template=_REF)
    reference_of = dict(zip(unique, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in listed:
        operation = _operation(endpoint, reference_of)
        path = endpoint.path.replace(":path}", "}")
        paths.setdefault(path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "TokenLight", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(endpoint: Endpoint, reference_of: dict[Schema, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if endpoint.response is not None:
        content[endpoint.media_type] = {"schema": reference_of[endpoint.response]}
    elif endpoint.event is None:
        content[endpoint.media_type] = {"schema": {}}
    if endpoint.event is not None:
        content["text/event-stream"] = {"schema": reference_of[endpoint.event]}
    error = {
        "description": "An error; `code` says which.",
        "content": {"application/json": {"schema": reference_of[ErrorResponse]}},
    }
    operation: dict[str, Any] = {
        "operationId": endpoint.handler.__name__,
        "summary": endpoint.summary,
        "responses": {
            "200": {"description": "Success.", "content": content},
            "4XX": error,
            "5XX": error,
        },
        "security": [] if endpoint.is_open else [{"bearer": []}, {"x-api-key": []}, {}],
    }
    if "{" in endpoint.path:
        name = endpoint.path.partition("{")[2].rstrip("}").removesuffix(":path")
        place = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [place]
    if endpoint.request is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": reference_of[endpoint.request]}},
        }
    return operation
