# SPDX-License-Identifier: Apache-2.0
"""Errors in Anthropic's words, so that its clients do what they do: compact, wait, or give up."""

from __future__ import annotations

import msgspec
from starlette.types import Scope

from tokenlight.base import errors as e
from tokenlight.base.errors import TokenLightError
from tokenlight.server.errors import http_error
from tokenlight.server.messages.schema import MessagesError, MessagesErrorResponse
from tokenlight.server.schemas.endpoint import served_path

_TYPE_OF_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def messages_error(error: TokenLightError, request_id: str | None = None) -> MessagesErrorResponse:
    status = http_error(error).status
    message = error.message
    if isinstance(error, e.ContextTooLong):
        # Claude Code looks for these words and numbers, and compacts the conversation.
        message = (
            f"prompt is too long: {error.prompt_tokens} tokens > {error.limit_tokens - 1} maximum"
        )
    return MessagesErrorResponse(
        error=MessagesError(type=_TYPE_OF_STATUS.get(status, "api_error"), message=message),
        request_id=request_id,
    )


def failure_event(error: TokenLightError) -> bytes:
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(messages_error(error))


def speaks_messages(scope: Scope) -> bool:
    """Whether a request is of this protocol.

    Its path says so; where all protocols have the path, or none has because a base URL is wrong,
    the version that it names; that, too, where a wrong key ends it before its path is looked up.
    """
    path = served_path(scope)
    if path.startswith("/v1/messages"):
        return True
    is_others = "endpoint" in scope and not path.startswith("/v1/models")  # found by the router
    return not is_others and any(name == b"anthropic-version" for name, _ in scope["headers"])
