# SPDX-License-Identifier: Apache-2.0
"""Stored responses over HTTP: continued, read, listed, deleted; by their writer alone."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from tests.processes import wait_until
from tests.server.running import MODEL
from tests.server.scripted_engine import call, scripted
from tests.server.test_responses import BASH, HI, ask, heard


@pytest.fixture
def server():
    with scripted(lambda text: call("bash", "{}") if "list" in text[-80:] else "Yes.") as made:
        yield made


def test_a_conversation_goes_on_from_a_stored_response(server):
    first = ask(server, "Please list.", instructions="Only now.", tools=[BASH])
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "a.txt"}
    second = ask(server, [result], previous_response_id=first.id, tools=[BASH])
    third = ask(server, "And?", previous_response_id=second.id, tools=[BASH])
    assert third.previous_response_id == second.id
    text = heard(server)
    assert "Only now." not in text
    words = ["Please list.", '"arguments": {}', "a.txt", "Yes.", "And?"]
    places = [text.find(word) for word in words]
    assert -1 not in places
    assert places == sorted(places)


def test_input_tokens_are_those_of_the_prompt_that_the_same_request_has(server):
    first = ask(server, "Please list.", tools=[BASH])
    result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "a.txt"}
    fields = {"previous_response_id": first.id, "tools": [BASH], "instructions": "Be brief."}
    num_heard = len(server.engine.heard)
    with server.client() as asking:
        counted = asking.responses.input_tokens.count(input=[result], **fields)
    assert len(server.engine.heard) == num_heard
    assert counted.object == "response.input_tokens"
    ask(server, [result], **fields)
    assert server.engine.heard[-1].num_prompt_tokens == counted.input_tokens


def test_a_reference_stands_for_the_stored_item(server):
    first = ask(server, [{"role": "user", "content": "Please list."}], tools=[BASH])
    called = first.output[0]
    second = ask(
        server,
        [
            {"role": "user", "content": "Please list."},
            {"type": "item_reference", "id": called.id},
            {"type": "function_call_output", "call_id": called.call_id, "output": "a.txt"},
        ],
        tools=[BASH],
    )
    text = heard(server)
    assert '"name": "bash", "arguments": {}' in text
    assert text.index('"arguments": {}') < text.index("<tool_response>\na.txt")
    with server.client() as asking:
        asking.responses.delete(first.id)
        ask(server, [HI, {"type": "item_reference", "id": called.id}], store=False)
        asking.responses.delete(second.id)  # which holds it as well
    with pytest.raises(openai.BadRequestError) as refused:
        ask(server, [{"type": "item_reference", "id": called.id}])
    assert refused.value.param == "input"


def test_a_reference_can_be_sent_again_and_again(server):
    first = ask(server, "Please list.", tools=[BASH])
    called = first.output[0]
    result = {"type": "function_call_output", "call_id": called.call_id, "output": "a.txt"}
    sent = [HI, {"type": "item_reference", "id": called.id}, result]
    for turn in range(3):
        answered = ask(server, [*sent, {"role": "user", "content": f"turn {turn}"}], tools=[BASH])
        assert heard(server).index('"arguments": {}') < heard(server).index("a.txt")
    with server.client() as asking:
        listed = asking.responses.input_items.list(answered.id, order="asc").data
    assert [item.type for item in listed][1] == "function_call"
    ask(server, [HI, {"id": called.id}, result], tools=[BASH])
    assert '"arguments": {}' in heard(server)


def test_a_stored_response_is_what_was_answered(server):
    answered = ask(server, "hi")
    with server.client() as asking:
        assert asking.responses.retrieve(answered.id) == answered


def test_a_streamed_response_is_stored_before_its_last_event(server):
    with server.client() as asking:
        for event in asking.responses.create(model=MODEL, input="hi", stream=True):
            if event.type == "response.completed":
                assert asking.responses.retrieve(event.response.id).output_text == "Yes."


def test_input_items_are_listed_newest_first_in_pages(server):
    answered = ask(server, [{"role": "user", "content": f"word{i}"} for i in range(5)])
    with server.client() as asking:
        listed = asking.responses.input_items.list
        page = listed(answered.id, limit=2)
        assert page.has_more
        texts = [item.content[0].text for item in listed(answered.id, limit=2)]
        assert texts == [f"word{i}" for i in (4, 3, 2, 1, 0)]
        ascending = [item.content[0].text for item in listed(answered.id, order="asc")]
        assert ascending == [f"word{i}" for i in range(5)]
        with pytest.raises(openai.BadRequestError):
            listed(answered.id, limit=0)


def test_an_item_comes_back_as_it_was_sent_whatever_its_unknown_fields_hold(server):
    content = [{"type": "input_text", "text": "hi", "of_next_year": {"a": None}}]
    sent = {"role": "user", "content": content, "id": "item_1", "next_year": [10**30, 1e300, "ü"]}
    asked = httpx.post(f"{server.url}/v1/responses", json={"input": [sent]})
    assert asked.status_code == 200
    listed = httpx.get(f"{server.url}/v1/responses/{asked.json()['id']}/input_items").json()
    assert listed["data"] == [{"type": "message", "status": "completed", **sent}]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a", "annotations": None}],
        },
        {"role": "user", "content": [{"text": "a"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
    ],
)
def test_what_may_be_left_out_of_an_item_is_in_the_list(server, item):
    asked = httpx.post(
        f"{server.url}/v1/responses", json={"input": [item, {"role": "user", "content": "b"}]}
    )
    listed = httpx.get(f"{server.url}/v1/responses/{asked.json()['id']}/input_items").json()
    for each in listed["data"]:
        TypeAdapter(ResponseItem).validate_python(each)


def test_a_deleted_response_is_gone(server):
    answered = ask(server, "hi")
    with server.client() as asking:
        asking.responses.delete(answered.id)
        for gone in (asking.responses.retrieve, asking.responses.delete, asking.responses.cancel):
            with pytest.raises(openai.NotFoundError) as refused:
                gone(answered.id)
            assert refused.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError):
            asking.responses.input_items.list(answered.id)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(server, "x", previous_response_id=answered.id)
    assert refused.value.param == "previous_response_id"


def test_store_false_leaves_nothing(server):
    answered = ask(server, "hi", store=False)
    with server.client() as asking, pytest.raises(openai.NotFoundError):
        asking.responses.retrieve(answered.id)
    assert server.services.store.num_bytes == 0


def test_another_key_sees_nothing(server):
    answered = ask(server, "hi")
    with server.client(api_key="another") as other:
        with pytest.raises(openai.NotFoundError):
            other.responses.retrieve(answered.id)
        with pytest.raises(openai.NotFoundError):
            other.responses.delete(answered.id)
        with pytest.raises(openai.BadRequestError):
            other.responses.create(model=MODEL, input="x", previous_response_id=answered.id)


def test_a_response_that_is_being_written_is_cancelled_and_kept_as_far_as_it_came():
    with scripted("word " * 200) as server:
        server.engine.token_s = 0.02
        with server.client() as asking, server.client() as other, ThreadPoolExecutor(1) as beside:
            events = []
            for event in asking.responses.create(model=MODEL, input="hi", stream=True):
                events.append(event)
                if len(events) == 8:
                    cancelling = beside.submit(other.responses.cancel, events[0].response.id)
            last = events[-1].response
            assert cancelling.result(20) == last
            assert asking.responses.retrieve(last.id) == last
        assert last.status == "cancelled"
        assert last.output_text.startswith("word")
        assert len(last.output_text) < 900


def test_a_response_that_is_answered_whole_is_stored_before_its_canceller_reads_it():
    with scripted("word " * 200) as server, ThreadPoolExecutor(1) as beside:
        server.engine.token_s = 0.05
        asked = beside.submit(
            httpx.post, f"{server.url}/v1/responses", json={"input": "hi"}, timeout=30
        )
        wait_until(lambda: bool(server.engine.seen), 20)
        id = server.engine.seen[-1].request_id.rpartition("-")[0]
        wait_until(lambda: bool(server.services.running.find(id)), 20)
        cancelled = httpx.post(f"{server.url}/v1/responses/{id}/cancel", timeout=30)
        assert cancelled.status_code == 200
        assert cancelled.json() == asked.result(20).json()
    assert cancelled.json()["status"] == "cancelled"


def test_another_key_cannot_cancel_a_running_response():
    with scripted("word " * 40) as server, server.client() as asking:
        server.engine.token_s = 0.02
        refused = None
        for event in asking.responses.create(model=MODEL, input="hi", stream=True):
            if refused is None:
                other = {"authorization": "Bearer another"}
                url = f"{server.url}/v1/responses/{event.response.id}/cancel"
                refused = httpx.post(url, headers=other, timeout=30)
        assert refused.status_code == 404
        assert event.response.status == "completed"


def test_a_response_that_has_ended_cannot_be_cancelled(server):
    answered = ask(server, "hi")
    with server.client() as asking, pytest.raises(openai.BadRequestError) as refused:
        asking.responses.cancel(answered.id)
    assert "has ended" in refused.value.message
