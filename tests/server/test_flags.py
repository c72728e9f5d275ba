# SPDX-License-Identifier: Apache-2.0
"""Server flags, each by what it changes for a client."""

import ssl

import httpx
import pytest
import tokenizers

from tests.models.tiny import write_tiny_llama
from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, running
from tests.server.tls import CERTIFICATE, KEY
from tokenlight.base.errors import CheckpointNotFound, ConfigError
from tokenlight.checkpoint import open_checkpoint
from tokenlight.config import EngineConfig, ModelConfig, ServerConfig
from tokenlight.server.run import check_certificate, open_model
from tokenlight.text import Tokenizer

HI = [{"role": "user", "content": "hi"}]


@pytest.fixture
def certificate(tmp_path):
    paths = {"ssl_certfile": tmp_path / "certificate.pem", "ssl_keyfile": tmp_path / "key.pem"}
    paths["ssl_certfile"].write_text(CERTIFICATE)
    paths["ssl_keyfile"].write_text(KEY)
    return {name: str(path) for name, path in paths.items()}


def test_with_a_certificate_the_server_speaks_https(certificate):
    with running(**certificate) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=certificate["ssl_certfile"])
        body = {"messages": HI, "stream": True}
        with httpx.Client(verify=trust, base_url=server.url) as client:
            assert client.get("/health").status_code == 200
            answer = client.post("/v1/chat/completions", json=body)
        assert answer.text.rstrip().endswith("data: [DONE]")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/health")


def test_a_certificate_that_cannot_be_used_is_told_before_a_model_loads(certificate, tmp_path):
    check_certificate(ServerConfig(**certificate))
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(ConfigError, match=r"--ssl-keyfile .*key\.pem cannot be used"):
        check_certificate(ServerConfig(**certificate))
    missing = {**certificate, "ssl_certfile": "/no/such.pem"}
    with pytest.raises(ConfigError, match=r"--ssl-certfile /no/such\.pem .* No such file"):
        check_certificate(ServerConfig(**missing))


def test_half_a_certificate_is_refused(certificate):
    with pytest.raises(ConfigError, match="go together"):
        ServerConfig(ssl_certfile=certificate["ssl_certfile"])


@pytest.mark.parametrize("path", ["llm", "/llm/", "/"])
def test_a_root_path_that_is_none_is_refused(path):
    with pytest.raises(ConfigError, match="--root-path must begin with a slash"):
        ServerConfig(root_path=path)


def test_below_a_root_path_everything_is_where_the_proxy_says():
    with running(root_path="/llm", api_key="key") as server:
        # A proxy strips the path that it serves us below.
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        headers = {"x-api-key": "key"}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200


def test_every_served_name_may_be_asked_for_and_answers_bear_the_first():
    with running(served_model_names=(MODEL, "alias", "org/other")) as server:
        listed = [model.id for model in server.client().models.list()]
        assert listed == [MODEL, "alias", "org/other"]
        for name in listed:
            assert server.client().models.retrieve(name).id == name
            answer = server.client().chat.completions.create(model=name, messages=HI)
            assert answer.model == MODEL


def test_a_seed_for_requests_that_bring_none_makes_them_repeat():
    engine = FakeEngine()
    with running(engine, seed=77) as server:
        for fields in ({}, {}, {"seed": 5}):
            server.client().chat.completions.create(model=MODEL, messages=HI, **fields)
    assert [seen.sampling.seed for seen in engine.seen] == [77, 77, 5]
    with pytest.raises(ConfigError, match="--seed must be from 0"):
        ServerConfig(seed=-1)


def test_what_the_makers_advise_holds_where_a_request_does_not_say():
    engine = FakeEngine()
    advised = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.1}
    with running(engine, advised=advised) as server:
        chat = server.client().chat.completions
        chat.create(model=MODEL, messages=HI)
        chat.create(model=MODEL, messages=HI, temperature=0, top_p=1, extra_body={"top_k": 0})
        body = {"model": MODEL, "messages": HI, "max_tokens": 4}
        assert httpx.post(f"{server.url}/v1/messages", json=body).status_code == 200
        answer = httpx.post(f"{server.url}/v1/responses", json={"input": "hi"}).json()
        assert (answer["temperature"], answer["top_p"]) == (0.6, 0.95)
    found = [
        (s.temperature, s.top_p, s.top_k, s.min_p, s.repetition_penalty)
        for s in (seen.sampling for seen in engine.seen)
    ]
    given = (0.6, 0.95, 20, 0.0, 1.1)
    assert found == [given, (0.0, 1.0, 0, 0.0, 1.1), given, given]


def test_another_chat_template_takes_the_place_of_the_models_own(tmp_path):
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    engine_config = EngineConfig(model=ModelConfig(model=str(path)))
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages | length }} messages")
    opened = open_model(ServerConfig(chat_template=str(template)), engine_config)
    assert opened.chat_template == "{{ messages | length }} messages"
    assert opened.tool_template is None
    assert open_model(ServerConfig(), engine_config) == open_checkpoint(path)
    (tmp_path / "latin.jinja").write_bytes(b"\xe9")
    (tmp_path / "empty.jinja").write_text(" \n")
    for name, fault in (
        ("nothing.jinja", "cannot be read: No such file or directory; name a file"),
        ("latin.jinja", "cannot be read: it is not UTF-8; name a file"),
        ("empty.jinja", "is empty, so every prompt would be; name a file"),
    ):
        with pytest.raises(ConfigError, match=rf"^--chat-template \S*{name} {fault}"):
            open_model(ServerConfig(chat_template=str(tmp_path / name)), engine_config)


def test_another_tokenizer_takes_the_place_of_the_models_own(tmp_path):
    model = write_tiny_llama(tmp_path / "tiny.gguf", vocab_size=512)
    other = write_tiny_llama(tmp_path / "other.gguf", vocab_size=300)

    def vocab_size(**flags) -> int:
        engine_config = EngineConfig(model=ModelConfig(model=str(model), **flags))
        opened = open_model(ServerConfig(), engine_config)
        return Tokenizer.from_checkpoint(opened).vocab_size

    assert vocab_size() == 512
    assert vocab_size(tokenizer=str(other)) == 300
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(CheckpointNotFound, match="there is no tokenizer"):
        vocab_size(tokenizer=str(folder))
    rust = tokenizers.Tokenizer(
        tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], unk_token=None)
    )
    rust.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    rust.decoder = tokenizers.decoders.ByteLevel()
    rust.save(str(folder / "tokenizer.json"))
    assert vocab_size(tokenizer=str(folder)) == 3
