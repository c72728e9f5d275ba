# SPDX-License-Identifier: Apache-2.0
"""Every message survives the wire; token ids are what numpy calls little-endian int32; garbage is a
typed error.
"""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenlight import wire

INT32 = st.integers(-(2**31), 2**31 - 1)

GENERATE = wire.Generate(
    request_id="a",
    prompt_token_ids=wire.pack_token_ids([1, 2, 3]),
    sampling=wire.SamplingParams(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, seed=2**63 - 1),
    max_new_tokens=7,
    stop_token_ids=(0, 2),
    priority=-1,
)
FACTS = wire.ModelFacts(
    max_model_tokens=8,
    vocab_size=9,
    block_tokens=16,
    num_blocks=3,
    kv_bytes=4,
    weights_bytes=5,
    load_s=0.5,
)
STATUS = wire.Status(
    num_steps=1,
    step_running_s=0.25,
    step_limit_s=8.0,
    num_running=2,
    num_waiting=3,
    num_free_blocks=4,
    num_blocks=5,
    num_cached_blocks=6,
    num_prompt_tokens=7,
    num_cached_tokens=8,
    num_sampled_tokens=9,
    num_preemptions=10,
    num_failed=11,
)


@pytest.mark.parametrize("message", [GENERATE, wire.Abort(request_id="a")])
def test_messages_to_the_engine_survive(message):
    assert wire.decode_to_engine(wire.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        wire.Ready(facts=FACTS),
        wire.Failed(code="checkpoint_corrupt", message="cut short"),
        STATUS,
        wire.Deltas(
            deltas=[
                wire.Delta(request_id="a", token_ids=[1, 2], num_cached_tokens=3),
                wire.Delta(
                    request_id="b",
                    token_ids=[],
                    num_cached_tokens=0,
                    finish_reason="error",
                    num_sampled_tokens=4,
                    error="the logits were not finite",
                ),
            ]
        ),
    ],
)
def test_messages_from_the_engine_survive(message):
    assert wire.decode_from_engine(wire.encode(message)) == message


@given(st.lists(INT32))
def test_token_ids_are_little_endian_int32(ids):
    packed = wire.pack_token_ids(ids)
    assert np.frombuffer(packed, "<i4").tolist() == ids
    assert list(wire.unpack_token_ids(packed)) == ids


@given(st.binary(max_size=64))
def test_garbage_is_refused_by_name(data):
    for decode in (wire.decode_to_engine, wire.decode_from_engine):
        with pytest.raises((msgspec.DecodeError, msgspec.ValidationError)):
            decode(data)


def test_directions_do_not_mix():
    with pytest.raises(msgspec.ValidationError):
        wire.decode_to_engine(wire.encode(STATUS))
    with pytest.raises(msgspec.ValidationError):
        wire.decode_from_engine(wire.encode(GENERATE))
