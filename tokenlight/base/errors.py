# SPDX-License-Identifier: Apache-2.0
"""Every error that a user can meet, as one small tree.

    TokenLightError
    |- ConfigError              a flag, a config field or an environment variable is wrong
    |- CheckpointError          a model's files cannot be used
    |  |- CheckpointNotFound    nothing is there
    |  |- CheckpointCorrupt     truncated, inconsistent, or not what its header says
    |  |- UnsupportedCheckpoint well formed, of an architecture, type or tokenizer we lack
    |  '- DownloadFailed        the default model (or a Hub model) could not be fetched
    |- RequestError             the caller's request is wrong; he can mend it
    |  |- InvalidRequest        malformed body, wrong type, value out of range
    |  |- UnsupportedParameter  a known field that this server does not implement
    |  |- ContextTooLong        the prompt alone does not fit
    |  |- ResponseNotFound     no stored response of this id and this key
    |  |- ModelNotFound         a model of another name was asked for
    |  |- RouteNotFound         no such path
    |  |- MethodNotAllowed      the path exists, but not with this method
    |  |- InvalidApiKey         missing or wrong key
    |  |- BodyTooLarge          more bytes than the server reads
    |  '- RequestTooSlow        it took longer to arrive than the server waits
    '- EngineError              the server's fault or state; by itself: this request failed alone
       |- EngineDead            the engine process has ended
       |- EngineStalled         the engine process makes no progress
       |- Overloaded            too many requests wait already
       |- ServerStopping        the server is draining
       '- InternalError         a fault of ours

Each carries a stable `code`; `server/errors.py` maps the classes to HTTP in one table. A message
says what was asked, what is allowed and what to do.
"""

_MOST_CHARS = 2000


def _bounded(text: str) -> str:
    """A text with what it begins and ends with, where it is longer than anybody reads."""
    cut = len(text) - _MOST_CHARS
    head, tail = _MOST_CHARS * 3 // 4, _MOST_CHARS // 4
    return text if cut <= 0 else f"{text[:head]} [{cut} characters left out] {text[-tail:]}"


class TokenLightError(Exception):
    """Root of the tree. `code` is stable and matched by tests; the text is free to improve."""

    code = "internal_error"

    @property
    def message(self) -> str:
        return str(self)


class ConfigError(TokenLightError):
    code = "invalid_config"


class CheckpointError(TokenLightError):
    code = "checkpoint_error"


class CheckpointNotFound(CheckpointError):
    code = "checkpoint_not_found"


class CheckpointCorrupt(CheckpointError):
    code = "checkpoint_corrupt"


class UnsupportedCheckpoint(CheckpointError):
    code = "unsupported_checkpoint"


class DownloadFailed(CheckpointError):
    code = "download_failed"


class RequestError(TokenLightError):
    """The caller's to mend. `param` names the field at fault, dotted from the body's root."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = None if param is None else _bounded(param)

    @property
    def message(self) -> str:
        """Bounded: it quotes what was sent."""
        return _bounded(str(self))


class InvalidRequest(RequestError):
    code = "invalid_request"


class UnsupportedParameter(RequestError):
    """A field that we know and do not implement: refused, never silently dropped."""

    code = "unsupported_parameter"

    def __init__(self, param: str, *, advice: str) -> None:
        super().__init__(f"{param!r} is not supported by this server; {advice}", param=param)


class ContextTooLong(RequestError):
    """The prompt alone does not fit.

    (A max_tokens that does not fit is lowered and reported, never refused.)
    """

    code = "context_length_exceeded"

    def __init__(self, *, prompt_tokens: int, limit_tokens: int, param: str | None = None) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens, but this server's context is {limit_tokens} "
            f"tokens and at least 1 must be left for the answer; shorten the prompt by at least "
            f"{prompt_tokens - limit_tokens + 1} tokens, or serve with a larger --max-model-len",
            param=param,
        )
        self.prompt_tokens = prompt_tokens
        self.limit_tokens = limit_tokens


class ModelNotFound(RequestError):
    code = "model_not_found"

    def __init__(self, *, asked: str, served: str) -> None:
        super().__init__(
            f"the model {asked!r} is not served here; this server has {served!r}: "
            f"send that name, or see /v1/models",
            param="model",
        )


class ResponseNotFound(RequestError):
    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"there is no response {response_id!r} that this API key stored; it was never stored "
            f"(store: false), was deleted, or gave way to newer ones",
            param="response_id",
        )


class RouteNotFound(RequestError):
    code = "route_not_found"


class MethodNotAllowed(RequestError):
    code = "method_not_allowed"


class InvalidApiKey(RequestError):
    code = "invalid_api_key"


class BodyTooLarge(RequestError):
    code = "body_too_large"

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(
            f"the request body is larger than this server's limit of {limit_bytes} bytes; "
            f"send a smaller body, or serve with a larger --max-body-bytes"
        )


class RequestTooSlow(RequestError):
    code = "request_timeout"

    def __init__(self, *, limit_s: float) -> None:
        super().__init__(
            f"the request was not whole after {limit_s:g} seconds; send it faster, or serve with a "
            f"larger --client-timeout"
        )


class EngineError(TokenLightError):
    code = "engine_error"


class EngineDead(EngineError):
    code = "engine_dead"


class EngineStalled(EngineError):
    code = "engine_stalled"


class Overloaded(EngineError):
    code = "overloaded"


class ServerStopping(EngineError):
    code = "server_stopping"


class InternalError(EngineError):
    code = "internal_error"
