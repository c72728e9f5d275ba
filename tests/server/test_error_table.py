# SPDX-License-Identifier: Apache-2.0
"""Every error class has a row in the table, and every code a row on the page."""

import inspect
import json
import re
from pathlib import Path

import pytest

from tokenlight.base import errors
from tokenlight.base.errors import (
    ContextTooLong,
    EngineDead,
    InvalidApiKey,
    Overloaded,
    TokenLightError,
    UnsupportedParameter,
)
from tokenlight.server.errors import TABLE, error_response

PAGE = Path(__file__).parents[2] / "docs/errors.md"

CLASSES = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, TokenLightError)
]


@pytest.mark.parametrize("error", CLASSES)
def test_every_class_is_mapped(error):
    assert error in TABLE


def test_statuses_separate_the_callers_faults_from_ours():
    for error, http in TABLE.items():
        is_callers = issubclass(error, errors.RequestError) or error is Overloaded
        assert (400 <= http.status < 500) == is_callers, error


def test_every_code_that_a_server_answers_is_on_the_page_with_its_status():
    table = PAGE.read_text().partition("## Codes")[2].partition("## Bad inputs")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \|", table, re.MULTILINE)
    told = {code: (int(status), kind) for code, status, kind in rows}
    answered = {
        error.code: (http.status, http.type)
        for error, http in TABLE.items()
        if issubclass(error, (errors.RequestError, errors.EngineError))
    }
    assert told == answered
    for error in CLASSES:
        assert f"`{error.code}`" in table


def test_codes_are_unique_but_for_a_branch_and_its_root():
    by_code: dict[str, list[type]] = {}
    for error in CLASSES:
        by_code.setdefault(error.code, []).append(error)
    shared = {code for code, found in by_code.items() if len(found) > 1}
    assert shared <= {"internal_error", "invalid_request"}


def test_a_class_of_another_room_takes_the_row_of_its_nearest_ancestor():
    class EngineVanished(EngineDead):
        pass

    assert error_response(EngineVanished("gone")).status_code == TABLE[EngineDead].status


@pytest.mark.parametrize(
    ("error", "param"),
    [
        (UnsupportedParameter("tools", advice="leave it out"), "tools"),
        (ContextTooLong(prompt_tokens=10, limit_tokens=5, param="messages"), "messages"),
        (Overloaded("full"), None),
    ],
)
def test_the_shape_is_openais(error, param):
    body = json.loads(error_response(error).body)
    assert body == {
        "error": {
            "message": str(error),
            "type": TABLE[type(error)].type,
            "param": param,
            "code": error.code,
        }
    }


def test_headers_say_when_to_come_back_and_how_to_authenticate():
    assert error_response(Overloaded("full")).headers["retry-after"] == "1"
    assert error_response(InvalidApiKey("no")).headers["www-authenticate"] == "Bearer"
    assert "retry-after" not in error_response(InvalidApiKey("no")).headers
