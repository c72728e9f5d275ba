# SPDX-License-Identifier: Apache-2.0
"""One answer over HTTP, streamed and timed."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from tokenlight.base.clock import now_s
from tokenlight.base.errors import ConfigError, TokenLightError

Message = Mapping[str, str]


class AnswerFailed(TokenLightError):
    """The server refused or failed; the text is its own."""

    code = "answer_failed"


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens, and the key to it."""

    url: str
    api_key: str | None


@dataclass
class Answer:
    """What has come so far."""

    text: str = ""
    finish_reason: str | None = None
    num_tokens: int = 0
    """The server's count once it has told it; until then, deliveries."""
    sent_s: float = field(default_factory=now_s)
    first_s: float | None = None
    last_s: float | None = None

    @property
    def speed(self) -> str:
        """Time to the first token and tokens per second after it."""
        if self.first_s is None or self.last_s is None:
            return "no tokens"
        parts = [f"first token {self.first_s - self.sent_s:.2f} s", f"{self.num_tokens} tokens"]
        if self.num_tokens > 1 and self.last_s > self.first_s:
            rate = (self.num_tokens - 1) / (self.last_s - self.first_s)
            parts.insert(1, f"{rate:.1f} tokens/s")
        return ", ".join(parts)


class Server:
    """An OpenAI-compatible server, as a chat needs it."""

    def __init__(self, url: str, api_key: str | None) -> None:
        bearer = f"Bearer {api_key}".encode(errors="surrogateescape")
        headers = {b"authorization": bearer} if api_key else {}
        # Prefill may take minutes; the server sends a comment every 10 s meanwhile.
        timeout = httpx.Timeout(60.0, connect=5.0)
        base = _base(url)
        # A proxy of the environment cannot reach this machine's own loopback.
        is_local = base.host in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.Client(
            base_url=base,
            headers=headers,
            timeout=timeout,
            trust_env=not is_local,
            # Of a server's own certificate: SSL_CERT_FILE holds here too.
            verify=httpx.create_ssl_context() if base.scheme == "https" else True,
        )

    def close(self) -> None:
        self._client.close()

    def model(self) -> str:
        """The served model's name.

        Raises:
            AnswerFailed: nobody answers there, or not like a server of this protocol.
        """
        try:
            answer = self._client.get("/v1/models")
            _check(answer)
            name: str = answer.json()["data"][0]["id"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            is_untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)
            advice = (
                "name its certificate in SSL_CERT_FILE"
                if is_untrusted
                else "check --url, or leave it out to start a server"
            )
            raise AnswerFailed(
                f"{self._client.base_url} does not answer as an OpenAI server would ({error}); "
                f"{advice}"
            ) from None
        return name

    def ask(
        self, messages: Sequence[Message], answer: Answer, parameters: Mapping[str, object]
    ) -> Generator[str, None, None]:
        """Stream the answer's text, noting in `answer` what comes and when.

        Leaving the iterator closes the connection, which ends the answer on the server too.

        Raises:
            AnswerFailed: the server refused or failed.
        """
        body = {
            "messages": list(messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **parameters,
        }
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    _check(response)
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        yield from _take(json.loads(line[6:]), answer)
        except httpx.HTTPError as error:
            raise AnswerFailed(
                f"the connection to {self._client.base_url} failed: {error}"
            ) from None


def _base(url: str) -> httpx.URL:
    try:
        return httpx.URL(url.rstrip("/").removesuffix("/v1"))
    except httpx.InvalidURL as error:
        raise ConfigError(
            f"--url {url!r} is no URL ({error}); name one like http://127.0.0.1:8000"
        ) from None


def _take(chunk: dict[str, object], answer: Answer) -> Iterator[str]:
    match chunk:
        case {"error": {"message": str(message)}}:
            raise AnswerFailed(message)
        case {"usage": {"completion_tokens": int(num_tokens)}}:
            answer.num_tokens = num_tokens
        case {"choices": [{"delta": {"content": str(text)}}]} if text:
            answer.last_s = now_s()
            answer.first_s = answer.first_s or answer.last_s
            answer.text += text
            answer.num_tokens += 1
            yield text
        case {"choices": [{"finish_reason": str(reason)}]}:
            answer.finish_reason = reason


def _check(response: httpx.Response) -> None:
    if response.status_code == 200:
        return
    try:
        message = response.json()["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = response.text[:200]
    raise AnswerFailed(f"{message} (HTTP {response.status_code})")
