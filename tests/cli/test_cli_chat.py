# SPDX-License-Identifier: Apache-2.0
"""`tokenlight chat` as a user drives it: lines in, text out, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.processes import is_asleep, wait_until
from tests.server.fake_engine import FakeEngine
from tests.server.running import MODEL, RunningServer, running
from tests.server.tls import CERTIFICATE, KEY
from tokenlight.cli import EXIT_USAGE, main
from tokenlight.cli.talk import Answer, AnswerFailed, Server


def start_chat(server: RunningServer, *argv: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "tokenlight", "chat", "--url", server.url, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HTTP_PROXY": "http://127.0.0.1:9"},
        # A suite that was started in the background ignores Ctrl-C, and its children would as well.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def chat(server: RunningServer, lines: str, *argv: str) -> str:
    process = start_chat(server, *argv)
    out, err = process.communicate(lines, timeout=60)
    assert process.returncode == 0, err
    return out


def prompts(engine: FakeEngine) -> list[str]:
    return [bytes(seen.prompt_token_ids).decode() for seen in engine.seen]


def test_answers_stream_with_history_and_their_speed():
    engine = FakeEngine(script=lambda seen: f"answer {len(seen.prompt_token_ids)}", token_s=0.01)
    with running(engine) as server:
        out = chat(server, "one\n\ntwo\n/exit\nthree\n", "--system", "Be brief.")
    first, second = prompts(engine)
    assert first == "system: Be brief.\nuser: one\nassistant:"
    assert second == f"{first} answer {len(first)}\nuser: two\nassistant:"
    assert f"answer {len(first)}\n" in out
    speeds = re.findall(r"\[first token (\d+\.\d+) s, (\d+\.\d+) tokens/s, (\d+) tokens\]", out)
    assert len(speeds) == 2
    assert [int(n) for *_, n in speeds] == [len(f"answer {len(p)}") + 1 for p in (first, second)]


def test_reset_forgets_all_but_the_system_message():
    engine = FakeEngine()
    with running(engine) as server:
        out = chat(server, "one\n/reset\ntwo\n", "--system", "S")
    assert prompts(engine)[1] == "system: S\nuser: two\nassistant:"
    assert "the conversation is forgotten" in out


def test_parameters_and_key_are_sent():
    engine = FakeEngine()
    with running(engine, api_key="sesame") as server:
        flags = ("--api-key", "sesame", "--temperature", "0", "--max-tokens", "4")
        out = chat(server, "one\n", *flags)
    assert (engine.seen[0].sampling.temperature, engine.seen[0].max_new_tokens) == (0.0, 4)
    assert "(cut at the token limit)" in out


def test_a_terminal_without_utf_8_does_not_end_the_chat():
    """What is typed, answered and sent as a key goes through a locale of ASCII alone."""
    engine = FakeEngine(script=lambda seen: "olé")
    with running(engine, api_key="clé") as server:
        flags = ["--url", server.url, "--api-key", "clé", "--system", "café"]
        done = subprocess.run(
            [sys.executable, "-m", "tokenlight", "chat", *flags],
            input=b"na\xc3\xafve \xff\n",
            capture_output=True,
            timeout=60,
            env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )
    assert done.returncode == 0, done.stderr
    assert prompts(engine) == ["system: café\nuser: naïve \ufffd\nassistant:"]
    assert b"ol\\xe9\n" in done.stdout


def test_a_certificate_of_its_own_is_named_in_ssl_cert_file(tmp_path, monkeypatch):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with running(ssl_certfile=str(certificate), ssl_keyfile=str(key)) as made:
        untold = pytest.raises(AnswerFailed, match="name its certificate in SSL_CERT_FILE")
        with closing(Server(made.url, None)) as server, untold:
            server.model()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with closing(Server(made.url, None)) as server:
            assert server.model() == MODEL


def test_a_temperature_that_is_no_number_is_wrong_usage(capsys):
    for typed in ("nan", "inf", "warm"):
        assert main(["chat", "--url", "http://127.0.0.1:9", "--temperature", typed]) == EXIT_USAGE
        assert f"--temperature: must be a finite number, got '{typed}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        (["some.gguf"], "MODEL"),
        (["--dtype", "float32"], "--dtype"),
        (["--no-enable-prefix-caching"], "--enable-prefix-caching, --no-enable-prefix-caching"),
    ],
)
def test_flags_of_an_engine_are_refused_beside_a_server_that_runs(capsys, typed, named):
    assert main(["chat", "--url", "http://127.0.0.1:9", *typed]) == EXIT_USAGE
    assert f"tokenlight: {named} is for a server of this chat's own" in capsys.readouterr().err


@pytest.mark.parametrize(("url", "said"), [("http://[::1", "is no URL"), ("", "--url is empty")])
def test_a_url_that_is_none_is_wrong_usage(capsys, url, said):
    assert main(["chat", "--url", url]) == EXIT_USAGE
    assert said in capsys.readouterr().err


def test_a_refusal_is_shown_and_forgotten():
    engine = FakeEngine()
    with running(engine) as server:
        out = chat(server, f"{'x' * 300}\nhi\n/what\n")
    assert "the prompt has 317 tokens" in out
    assert prompts(engine) == ["user: hi\nassistant:"]
    assert "unknown command /what" in out


def test_ctrl_c_stops_the_answer_and_not_the_chat():
    engine = FakeEngine(script=lambda seen: "z" * 100, token_s=0.1)
    with running(engine) as server:
        process = start_chat(server)
        process.stdin.write("go\n")
        process.stdin.flush()
        shown = ""
        while "zzz" not in shown:
            shown += process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        while "(stopped)" not in shown:
            shown += process.stdout.read(1)
        wait_until(lambda: engine.num_unfinished == 0, 60)
        assert engine.seen[0].was_aborted
        engine.script, engine.token_s = "done", 0.0
        rest, _ = process.communicate("again\n", timeout=60)
    assert process.returncode == 0
    assert "done" in rest
    said = re.search(r"z+", shown).group()
    assert prompts(engine)[1] == f"user: go\nassistant: {said}\nuser: again\nassistant:"


def test_ctrl_c_at_the_prompt_explains_and_goes_on():
    with running() as server:
        process = start_chat(server)
        shown = process.stdout.readline()
        for _ in range(5):  # between its first line and the prompt it would sleep once at most
            time.sleep(0.05)
            wait_until(lambda: is_asleep(process.pid), 60)
        process.send_signal(signal.SIGINT)
        while "\n/reset forgets" not in shown:
            shown += process.stdout.read(1)
        rest, _ = process.communicate("hi\n", timeout=60)
    assert process.returncode == 0
    assert "Hello, world" in rest


def test_a_server_that_dies_midway_is_told():
    with running(FakeEngine(fail_after=3)) as server:
        out = chat(server, "hi\n")
    assert "Hel" in out
    assert "the engine was killed" in out


@pytest.mark.parametrize(
    ("answer", "speed"),
    [
        (Answer(sent_s=1.0), "no tokens"),
        (Answer(num_tokens=1, sent_s=1.0, first_s=1.5, last_s=1.5), "first token 0.50 s, 1 tokens"),
        (
            Answer(num_tokens=11, sent_s=1.0, first_s=2.0, last_s=4.0),
            "first token 1.00 s, 5.0 tokens/s, 11 tokens",
        ),
    ],
)
def test_speed_counts_the_tokens_after_the_first(answer, speed):
    assert answer.speed == speed
