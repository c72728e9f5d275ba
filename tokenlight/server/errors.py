# SPDX-License-Identifier: Apache-2.0
"""One table from error classes to HTTP, and the OpenAI shape that every error leaves in.

A class that is not in the table fails a test, so that no new error reaches a client as a bare 500.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from tokenlight.base import errors as e
from tokenlight.base.errors import RequestError, TokenLightError


@dataclass(frozen=True, slots=True)
class HttpError:
    """How one error class looks over HTTP."""

    status: int
    type: str
    retry_after_s: int | None = None
    """When a client may try again; None when trying again cannot help."""


_CALLER = "invalid_request_error"
_SERVER = "server_error"

TABLE: dict[type[TokenLightError], HttpError] = {
    e.TokenLightError: HttpError(500, _SERVER),
    e.ConfigError: HttpError(500, _SERVER),
    e.CheckpointError: HttpError(500, _SERVER),
    e.CheckpointNotFound: HttpError(500, _SERVER),
    e.CheckpointCorrupt: HttpError(500, _SERVER),
    e.UnsupportedCheckpoint: HttpError(500, _SERVER),
    e.DownloadFailed: HttpError(500, _SERVER),
    e.RequestError: HttpError(400, _CALLER),
    e.InvalidRequest: HttpError(400, _CALLER),
    e.UnsupportedParameter: HttpError(400, _CALLER),
    e.ContextTooLong: HttpError(400, _CALLER),
    e.ModelNotFound: HttpError(404, "not_found_error"),
    e.ResponseNotFound: HttpError(404, "not_found_error"),
    e.RouteNotFound: HttpError(404, "not_found_error"),
    e.MethodNotAllowed: HttpError(405, _CALLER),
    e.InvalidApiKey: HttpError(401, "authentication_error"),
    e.BodyTooLarge: HttpError(413, _CALLER),
    e.RequestTooSlow: HttpError(408, _CALLER),
    e.EngineError: HttpError(500, _SERVER),
    e.EngineDead: HttpError(503, _SERVER, retry_after_s=10),
    e.EngineStalled: HttpError(503, _SERVER, retry_after_s=10),
    e.Overloaded: HttpError(429, "rate_limit_error", retry_after_s=1),
    e.ServerStopping: HttpError(503, _SERVER, retry_after_s=10),
    e.InternalError: HttpError(500, _SERVER),
}


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. `code` is stable; `message` is for people."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not a success."""

    error: ErrorBody


def http_error(error: TokenLightError) -> HttpError:
    """The table's row for this error, or for the nearest class above it."""
    return next(TABLE[c] for c in type(error).__mro__ if c in TABLE)


def error_body(error: TokenLightError) -> ErrorResponse:
    """The error in OpenAI's shape."""
    return ErrorResponse(
        error=ErrorBody(
            message=error.message,
            type=http_error(error).type,
            param=error.param if isinstance(error, RequestError) else None,
            code=error.code,
        )
    )


def error_response(error: TokenLightError, body: msgspec.Struct | None = None) -> Response:
    """The error as a whole HTTP answer; `body` is its shape where that is not OpenAI's."""
    http = http_error(error)
    headers = {}
    if http.retry_after_s is not None:
        headers["retry-after"] = str(http.retry_after_s)
    if http.status == 401:
        headers["www-authenticate"] = "Bearer"
    if http.status == 413:
        # The rest of the body is not read: the connection cannot be used again.
        headers["connection"] = "close"
    return Response(
        msgspec.json.encode(error_body(error) if body is None else body),
        status_code=http.status,
        headers=headers,
        media_type="application/json",
    )
