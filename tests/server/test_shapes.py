# SPDX-License-Identifier: Apache-2.0
"""What an answer must look like is never dropped: two shapes, or an unknown one, are refused."""

from itertools import combinations

import httpx
import pytest

from tests.server.running import running
from tokenlight.base.errors import InvalidRequest
from tokenlight.server.decoding.shapes import decode_shape
from tokenlight.server.schemas.parameters import GenerationFields, StructuredOutputs

ASKED = {
    "json": {"type": "integer"},
    "json_object": True,
    "regex": "a",
    "choice": ["b"],
    "grammar": 'start: "c"',
}


@pytest.mark.parametrize("names", list(combinations(ASKED, 2)), ids=" ".join)
def test_two_shapes_are_refused(names):
    asked = StructuredOutputs(**{name: ASKED[name] for name in names})
    with pytest.raises(InvalidRequest, match="both say what the answer must look like") as refused:
        decode_shape(GenerationFields(structured_outputs=asked))
    assert all(f"'structured_outputs.{name}'" in refused.value.message for name in names)


@pytest.mark.parametrize("name", ASKED)
def test_a_shape_is_known_by_the_field_that_asks_for_it(name):
    asked = StructuredOutputs(**{name: ASKED[name]})
    shape = decode_shape(GenerationFields(structured_outputs=asked))
    assert shape is not None
    assert shape.param == f"structured_outputs.{name}"


@pytest.mark.parametrize(
    ("unknown", "told"),
    [({"type": "yaml", "schema": {"type": "integer"}}, '"yaml"'), ({}, ""), ({"type": 5}, "5")],
    ids=["another", "none", "no text"],
)
def test_a_kind_of_shape_that_nobody_knows_is_refused(unknown, told):
    say = [{"role": "user", "content": "hi"}]
    asked = [
        ("/v1/chat/completions", {"messages": say, "response_format": unknown}),
        ("/v1/responses", {"input": "hi", "text": {"format": unknown}}),
        ("/v1/messages", {"messages": say, "output_config": {"format": unknown}}),
        ("/v1/messages", {"messages": say, "output_format": unknown}),
    ]
    with running() as server:
        for path, body in asked:
            answer = httpx.post(server.url + path, json=body)
            assert answer.status_code == 400, path
            message = answer.json()["error"]["message"]
            assert "json_schema" in message
            assert told in message.rpartition("got ")[2]
            assert "None" not in message
    assert not server.engine.seen
