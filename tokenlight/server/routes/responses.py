# SPDX-License-Identifier: Apache-2.0
"""POST /v1/responses, counting what one would read, and what it stored: OpenAI's protocol."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenlight.base.clock import unix_s
from tokenlight.base.errors import ContextTooLong, InvalidRequest
from tokenlight.server.admission import Admitted, admit, constrained, limit_headers
from tokenlight.server.answer.answer import Ended, answer
from tokenlight.server.answer.explain import prefix_headers
from tokenlight.server.answer.prompt import Prompt, make_prompt
from tokenlight.server.decoding.notes import Notes
from tokenlight.server.decoding.openai_tools import KnownTool, decode_tools
from tokenlight.server.http.body import decode_body, read_body
from tokenlight.server.http.sse import EventStream, until_disconnect
from tokenlight.server.responses.decode import (
    check_supported,
    decode_conversation,
    decode_input,
    note_left_out,
)
from tokenlight.server.responses.encode import Envelope, ItemEncoder, answered_turn
from tokenlight.server.responses.schema import (
    Deleted,
    InputTokenCount,
    ItemList,
    ResponseAnswer,
    ResponsesEvent,
    ResponsesRequest,
)
from tokenlight.server.responses.stream import ResponsesStream
from tokenlight.server.schemas.endpoint import Endpoint, json_response
from tokenlight.server.schemas.parameters import GenerationFields
from tokenlight.server.schemas.unsupported import RESPONSES
from tokenlight.server.services import Services, owner, request_id, services
from tokenlight.server.store import StoredResponse
from tokenlight.text.conversation import Turn

_SEALED = "reasoning.encrypted_content"


async def create_response(request: Request) -> Response | ASGIApp:
    svc = services(request)
    svc.lifecycle.check_open()
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, ResponsesRequest, RESPONSES)
    notes = Notes()
    try:
        asked = await _ask(svc, request, body, notes)
    except ContextTooLong as error:
        if not (body.stream and _compacts_on_event(request)):
            raise
        return _overflow(svc, body, error)
    headers = {
        **limit_headers([asked.admitted]),
        **notes.headers(),
        **await prefix_headers(svc, request, asked.prompt),
    }
    if body.stream:
        stream = ResponsesStream(asked.envelope, asked.items)
        return EventStream(
            _events(svc, asked, stream),
            headers=headers,
            on_error=svc.metrics.count_error,
            voice=stream,
        )
    made = await until_disconnect(request.receive, _whole(svc, asked))
    return json_response(made, headers=headers)


def _compacts_on_event(request: Request) -> bool:
    """Codex compacts when a stream says that the context is full, and gives up on a 400."""
    return request.headers.get("originator", "").startswith("codex")


def _overflow(svc: Services, body: ResponsesRequest, error: ContextTooLong) -> ASGIApp:
    envelope = Envelope(
        _response_id(), unix_s(), svc.model_name, body, error.prompt_tokens, svc.advised
    )
    stream = ResponsesStream(envelope, ItemEncoder({}, seals_reasoning=False))

    async def events() -> AsyncGenerator[bytes, None]:
        svc.metrics.count_error(error.code)
        yield stream.failure(error)

    return EventStream(events(), headers={}, on_error=svc.metrics.count_error, voice=stream)


def _response_id() -> str:
    return f"resp_{secrets.token_hex(16)}"


def _own_name(response_id: str, asker: bytes) -> str:
    """What a running response is called by whom it belongs to."""
    return f"{response_id} of {asker.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A validated request."""

    envelope: Envelope
    items: ItemEncoder
    admitted: Admitted
    prompt: Prompt
    owner: bytes
    input: str | list[dict[str, Any]] | None
    said: list[Turn]
    """The same as turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What a request says, and the prompt that it makes."""

    prompt: Prompt
    input: str | list[dict[str, Any]] | None
    """With the items that its references name."""
    said: list[Turn]
    known: dict[str, KnownTool]


async def _read(svc: Services, asker: bytes, body: ResponsesRequest, notes: Notes) -> _Read:
    svc.check_model(body.model)
    check_supported(body)
    note_left_out(body, notes)
    known = decode_tools(body.tools or (), notes)
    input = await _resolved(svc, asker, body.input)
    said = decode_input(input, notes)
    earlier: list[Turn] = []
    if body.previous_response_id is not None:
        earlier = await svc.store.get_turns(asker, body.previous_response_id)
    if not said and not earlier:
        raise InvalidRequest("'input' is empty: send at least 1 item or a text", param="input")
    conversation = decode_conversation(body, earlier, said, known)
    prompt = await make_prompt(svc, conversation, notes)
    return _Read(prompt=prompt, input=input, said=said, known=known)


async def count_input_tokens(request: Request) -> Response:
    svc = services(request)
    data = await read_body(request, svc.config.max_body_bytes)
    body = decode_body(data, ResponsesRequest, RESPONSES)
    notes = Notes()
    read = await _read(svc, owner(request), body, notes)
    return json_response(
        InputTokenCount(input_tokens=len(read.prompt.token_ids)), headers=notes.headers()
    )


async def _ask(svc: Services, request: Request, body: ResponsesRequest, notes: Notes) -> _Asked:
    asker = owner(request)
    read = await _read(svc, asker, body, notes)
    prompt = read.prompt
    response_id = _response_id()
    admitted = constrained(
        admit(
            svc,
            _generation_fields(body),
            prompt.token_ids,
            request_id=response_id,
            names=(response_id, request_id(request), _own_name(response_id, asker)),
            max_tokens=body.max_output_tokens,
            param="input",
        ),
        prompt.grammar,
        prompt.thinking,
    )
    return _Asked(
        envelope=Envelope(
            response_id, unix_s(), svc.model_name, body, len(prompt.token_ids), svc.advised
        ),
        items=ItemEncoder(read.known, seals_reasoning=_SEALED in (body.include or ())),
        admitted=admitted,
        prompt=prompt,
        owner=asker,
        input=read.input,
        said=read.said,
    )


async def _resolved(
    svc: Services, asker: bytes, sent: str | list[dict[str, Any]] | None
) -> str | list[dict[str, Any]] | None:
    """The input with references replaced by the stored items that they name."""
    if not isinstance(sent, list):
        return sent
    return [
        await svc.store.get_item(asker, str(item.get("id"))) if _is_reference(item) else item
        for item in sent
    ]


def _is_reference(item: dict[str, Any]) -> bool:
    """Named by its type, which the protocol lets be left out."""
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


def _generation_fields(body: ResponsesRequest) -> GenerationFields:
    return GenerationFields(
        temperature=body.temperature,
        top_p=body.top_p,
        stream=body.stream,
        seed=body.seed,
        skip_special_tokens=False,  # the parser reads them
    )


async def _whole(svc: Services, asked: _Asked) -> ResponseAnswer:
    made: ResponseAnswer | None = None
    async with aclosing(answer(svc, asked.admitted, asked.prompt)) as happenings:
        async for happening in happenings:
            if isinstance(happening, Ended):
                # Before it leaves the running ones: who cancels it reads it at once.
                made = await _finish(svc, asked, happening)
    assert made is not None
    return made


async def _events(
    svc: Services, asked: _Asked, stream: ResponsesStream
) -> AsyncGenerator[bytes, None]:
    async with aclosing(answer(svc, asked.admitted, asked.prompt)) as happenings:
        async for happening in happenings:
            if isinstance(happening, Ended):
                # Before its last event: the client may continue from it at once.
                await _finish(svc, asked, happening)
            if events := stream.event(happening):
                yield events


async def _finish(svc: Services, asked: _Asked, ended: Ended) -> ResponseAnswer:
    response = asked.envelope.ended(ended, asked.items)
    if response.store:
        await svc.store.save(
            asked.owner,
            StoredResponse(
                id=response.id,
                previous_id=response.previous_response_id,
                response=msgspec.json.encode(response),
                input=_input_items(asked.input),
                turns=[*asked.said, answered_turn(ended)],
            ),
        )
    return response


def _input_items(sent: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The input as the protocol lists it."""
    if sent is None or isinstance(sent, str):
        content = [{"type": "input_text", "text": sent or ""}]
        sent = [{"type": "message", "role": "user", "content": content}] if sent else []
    return [_listed(item) for item in sent]


def _listed(item: dict[str, Any]) -> dict[str, Any]:
    """An item with what may be left out when it is sent, but not when it is listed."""
    id = item.get("id")
    own_id = id if isinstance(id, str) else f"item_{secrets.token_hex(12)}"
    made = {**item, "type": item.get("type") or "message", "id": own_id}
    made["status"] = item.get("status") or "completed"
    if made["type"] == "message":
        content = item.get("content")
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        is_said = item.get("role") == "assistant"
        made["content"] = [_listed_part(part, is_said=is_said) for part in parts]
    elif made["type"] == "reasoning":
        made["summary"] = item.get("summary") or []
    return made


def _listed_part(part: Any, *, is_said: bool) -> Any:
    """A text of either side has one type, whatever it was sent as."""
    if isinstance(part, str):
        part = {"text": part}
    if not isinstance(part, dict) or "text" not in part:
        return part
    if is_said:
        annotations = part.get("annotations") or []
        return {**part, "type": "output_text", "annotations": annotations}
    return {**part, "type": "input_text"}


async def get_response(request: Request) -> Response:
    svc = services(request)
    if request.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise InvalidRequest(
            "'stream' is not supported when a stored response is read; leave it out",
            param="stream",
        )
    data = await svc.store.get_response(owner(request), request.path_params["response_id"])
    return Response(data, media_type="application/json")


async def delete_response(request: Request) -> Response:
    response_id = request.path_params["response_id"]
    await services(request).store.delete(owner(request), response_id)
    return json_response(Deleted(id=response_id))


async def cancel_response(request: Request) -> Response:
    svc = services(request)
    response_id = request.path_params["response_id"]
    # Under this name there is none but the asker's own, and none of another protocol.
    running = svc.running.find(_own_name(response_id, owner(request)))
    for engine_id in running:
        svc.engine.abort(engine_id)
    if not running:
        await svc.store.get_response(owner(request), response_id)
        raise InvalidRequest(
            f"{response_id!r} has ended and cannot be cancelled any more", param="response_id"
        )
    await svc.running.wait_ended(response_id)
    data = await svc.store.get_response(owner(request), response_id)
    return Response(data, media_type="application/json")


async def list_input_items(request: Request) -> Response:
    response_id = request.path_params["response_id"]
    items = await services(request).store.get_input(owner(request), response_id)
    if request.query_params.get("order", "desc") == "desc":
        items.reverse()
    after = request.query_params.get("after")
    ids = [item["id"] for item in items]
    if after in ids:
        items = items[ids.index(after) + 1 :]
    limit = _limit(request)
    page = items[:limit]
    return json_response(
        ItemList(
            data=page,
            first_id=page[0]["id"] if page else None,
            last_id=page[-1]["id"] if page else None,
            has_more=len(items) > limit,
        )
    )


def _limit(request: Request) -> int:
    sent = request.query_params.get("limit", "20")
    if not sent.isdecimal() or not 1 <= int(sent) <= 100:
        raise InvalidRequest(
            f"'limit' must be a whole number from 1 to 100, got {sent!r}", param="limit"
        )
    return int(sent)


ENDPOINTS = [
    Endpoint(
        path="/v1/responses",
        method="POST",
        handler=create_response,
        summary="Answer a conversation, in OpenAI's Responses protocol.",
        request=ResponsesRequest,
        response=ResponseAnswer,
        event=ResponsesEvent,
    ),
    Endpoint(
        path="/v1/responses/input_tokens",
        method="POST",
        handler=count_input_tokens,
        summary="How many prompt tokens a request to /v1/responses has.",
        request=ResponsesRequest,
        response=InputTokenCount,
    ),
    Endpoint(
        path="/v1/responses/{response_id}",
        method="GET",
        handler=get_response,
        summary="A stored response.",
        response=ResponseAnswer,
    ),
    Endpoint(
        path="/v1/responses/{response_id}",
        method="DELETE",
        handler=delete_response,
        summary="Forget a stored response.",
        response=Deleted,
    ),
    Endpoint(
        path="/v1/responses/{response_id}/cancel",
        method="POST",
        handler=cancel_response,
        summary="Stop a response that is being written; what there is of it is stored.",
        response=ResponseAnswer,
    ),
    Endpoint(
        path="/v1/responses/{response_id}/input_items",
        method="GET",
        handler=list_input_items,
        summary="The input items of a stored response.",
        response=ItemList,
    ),
]
