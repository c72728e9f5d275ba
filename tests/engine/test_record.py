# SPDX-License-Identifier: Apache-2.0
"""What a real engine did with `--record-control` is repeated bit for bit; without it is no file."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tokenlight import LLM, SamplingParams
from tokenlight.base.errors import ConfigError
from tokenlight.config import CacheConfig, EngineConfig, SchedulerConfig
from tokenlight.control.record import pack

pytestmark = pytest.mark.e2e


def config(record: Path | None) -> EngineConfig:
    """Little memory: requests wait, share prefixes and are preempted."""
    return EngineConfig(
        cache=CacheConfig(block_tokens=4, kv_cache_bytes=1 << 15),
        scheduler=SchedulerConfig(max_num_requests=4, max_step_tokens=16),
        num_threads=1,
        record_control=None if record is None else str(record),
    )


def run(tiny_path: Path, record: Path | None) -> list[list[int]]:
    prompts = [[1 + i % 3, 2, 3, 4, 5, 6, 7, 8 + i] for i in range(8)]
    sampling = SamplingParams(temperature=1.0, seed=3)
    with LLM(tiny_path, config=config(record)) as llm:
        first = llm.generate(prompts, sampling, max_tokens=9)
        (stopped,) = llm.generate("the rain", sampling, max_tokens=30, stop="e")
    return [c.token_ids for c in [*first, stopped]]


def replay(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokenlight.control.replay", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_an_engines_run_is_replayed_bit_for_bit(tiny_path, tmp_path):
    path = tmp_path / "run.jsonl"
    recorded = run(tiny_path, path)
    assert recorded == run(tiny_path, None)
    assert [p.name for p in tmp_path.iterdir()] == ["run.jsonl"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    calls = [json.loads(line) for line in path.read_text().splitlines()]
    verbs = [verb for verb, _, _ in calls]
    assert verbs[0] == "config"
    assert (verbs.count("submit"), verbs.count("commit")) > (8, 9)
    prompts = [arguments["prompt_token_ids"] for verb, arguments, _ in calls if verb == "submit"]
    assert prompts[1] == pack([2, 2, 3, 4, 5, 6, 7, 9])
    done = replay(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{len(calls) - 1} calls, all answered as recorded\n"

    place = verbs.index("commit")
    calls[place][1]["sampled_token_ids"] = pack([11])
    path.write_text("".join(json.dumps(call) + "\n" for call in calls))
    assert replay(path).returncode == 1


def test_a_file_that_cannot_be_written_is_said_before_anything_is_served(tiny_path, tmp_path):
    absent = tmp_path / "absent" / "run.jsonl"
    with pytest.raises(ConfigError, match=r"--record-control .*absent.* cannot be written"):
        LLM(tiny_path, config=config(absent))
