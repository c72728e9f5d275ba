# SPDX-License-Identifier: Apache-2.0
"""Requests made from our own OpenAPI document, right and wrong: none is answered with 5xx.

Schemathesis makes them, for every operation but those that only tell of the process; the engine is
a fake one that says little.
"""

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error

from tests.server.fake_engine import FakeEngine
from tests.server.running import running
from tokenlight.server.app import ENDPOINTS
from tokenlight.server.schemas.openapi import openapi_document

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DOCUMENT = openapi_document(ENDPOINTS)
ABOUT_ITSELF = ("/docs", "/openapi.json", "/metrics", "/version")
# What has no body cannot be asked wrongly: any text may stand in a path.
ASKED = [
    pytest.param(method, path, mode, id=f"{method} {path} {mode.value}")
    for path, operations in DOCUMENT["paths"].items()
    for method, operation in operations.items()
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    if path not in ABOUT_ITSELF
    if mode is GenerationMode.POSITIVE or "requestBody" in operation
]
NUM_EXAMPLES = 40


@pytest.fixture(scope="module")
def server():
    with running(FakeEngine(script="Yes."), admin_api_key="admin") as made:
        yield made


@pytest.mark.parametrize(("method", "path", "mode"), ASKED)
def test_no_request_is_answered_by_a_server_error(server, method, path, mode):
    operation = schemathesis.openapi.from_dict(DOCUMENT)[path][method.upper()]
    statuses = Counter()

    @settings(
        max_examples=NUM_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        headers = {"authorization": "Bearer admin"}
        answer = case.call(base_url=server.url, headers=headers, timeout=20)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=[not_a_server_error])

    check()
    assert statuses
    if mode is GenerationMode.NEGATIVE:
        assert statuses.keys() & {400, 404, 422}, "nothing of what was wrong was refused"
