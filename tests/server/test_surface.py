# SPDX-License-Identifier: Apache-2.0
"""The surface that users depend on, written down: a change here is seen in review.

`UPDATE_SNAPSHOTS=1 pytest tests/server/test_surface.py` writes the files anew.
"""

import inspect
import json
import os
import re
from dataclasses import fields
from pathlib import Path

import httpx
import pytest

from tests.server.running import running
from tokenlight.base import errors
from tokenlight.base.env import Env
from tokenlight.config import EngineConfig, ServerConfig
from tokenlight.config.flags import flags_of
from tokenlight.server.app import ENDPOINTS
from tokenlight.server.schemas.chat import ChatRequest
from tokenlight.server.schemas.completion import CompletionRequest
from tokenlight.server.schemas.openapi import openapi_document
from tokenlight.server.schemas.unsupported import (
    CHAT,
    COMPLETION,
    MESSAGES,
    RESPONSES,
    fields_of,
)

API_PAGE = Path(__file__).parents[2] / "docs/api.md"
SNAPSHOTS = Path(__file__).parent / "snapshots"


def compare(name: str, text: str) -> None:
    path = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert path.read_text() == text


def lines(items) -> str:
    return "".join(f"{item}\n" for item in items)


def test_openapi():
    compare("openapi.json", json.dumps(openapi_document(ENDPOINTS), indent=1) + "\n")


def test_routes():
    compare(
        "routes.txt",
        lines(
            f"{e.method} {e.path}{' open' if e.is_open else ''}{' admin' if e.is_admin else ''}"
            for e in ENDPOINTS
        ),
    )


def test_unsupported_fields():
    known = {"chat": CHAT, "completion": COMPLETION, "messages": MESSAGES, "responses": RESPONSES}
    compare(
        "unsupported.txt", lines(f"{p} {n}" for p, named in known.items() for n in sorted(named))
    )


def test_flags():
    flags = [*flags_of(EngineConfig), *flags_of(ServerConfig)]
    compare("flags.txt", lines(f"{flag.shown} = {flag.default!r}" for flag in flags))


def test_environment_variables():
    source = inspect.getsource(Env)
    compare("env.txt", lines(re.findall(r"^    \"\"\"([A-Z_]+): ", source, re.MULTILINE)))
    assert len(fields(Env)) == len((SNAPSHOTS / "env.txt").read_text().splitlines())


def test_error_codes():
    found = {
        item.code
        for _, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, errors.TokenLightError)
    }
    compare("error_codes.txt", lines(sorted(found)))


def test_metrics():
    with running() as server:
        text = httpx.get(f"{server.url}/metrics").text
    compare("metrics.txt", lines(re.findall(r"^# TYPE (.+)$", text, re.MULTILINE)))


def test_every_reference_in_the_document_leads_somewhere():
    document = openapi_document(ENDPOINTS)
    schemas = document["components"]["schemas"]
    references = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(references) == set(schemas)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
def test_every_endpoint_is_documented(endpoint):
    path = endpoint.path.replace(":path}", "}")
    assert f"{endpoint.method} `{path}`" in API_PAGE.read_text()


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
def test_every_parameter_is_documented(schema):
    table = API_PAGE.read_text().partition("## Parameters")[2].partition("## Stopping")[0]
    for name in fields_of(schema):
        assert f"`{name}`" in table, name


def test_every_metric_is_documented():
    page = API_PAGE.read_text()
    for line in (SNAPSHOTS / "metrics.txt").read_text().splitlines():
        name, kind = line.split()
        suffix = "_total" if kind == "counter" and not name.endswith("_total") else ""
        assert f"`{name}{suffix}`" in page, name


def test_the_docs_page_needs_nobody_else():
    with running() as server:
        answer = httpx.get(f"{server.url}/docs")
        assert httpx.get(f"{server.url}/openapi.json").json() == openapi_document(ENDPOINTS)
    assert not re.search(r"(src|href)=.?https?:", answer.text)
    assert 'fetch("openapi.json")' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
