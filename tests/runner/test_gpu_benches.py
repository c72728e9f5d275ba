# SPDX-License-Identifier: Apache-2.0
"""What is to be run on a GPU is ready: every bar has its line, and the load runs on a CPU too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu
from benchmarks.gpu_load import MOST_GROWTH_BYTES, grown, wrongs
from tests.engine.rig import GREEDY
from tokenlight.wire import Delta, SamplingParams, TokenLogprobs

ROOT = Path(__file__).parents[2]
BARS = """
    qwen3_8b_b1 qwen3_8b_b4 qwen3_8b_b16 qwen3_8b_50k_b1 qwen3_8b_50k_b4 llama_1b_b1
    gemm_chain_m1 gemm_chain_m4 gemm_chain_m16 gqa_b1_1k_us gqa_b1_4k_us gqa_b1_16k_us gqa_b1_32k_us
    gqa_b8_32k_us sampler_b1_us sampler_b16_us append_1k_on_50k_ms prefill_8k_tflops
    sampled_b1_over_greedy grammar_b1_over_greedy host_us_per_step_b16 ready_s_dummy
    ready_s_dummy_again
"""
REPORTED = ["qwen3_30b_a3b_b1", "b1_beside_8k_prefill_worst_gap_ms"]


def lines(capsys: pytest.CaptureFixture[str], kind: str) -> dict[str, list[str]]:
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    return {words[1]: words[2:] for words in told if words[0] == kind}


def test_what_nobody_measured_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.report_all({}, {}) == 1
    told = lines(capsys, "BAR")
    assert sorted(told) == sorted(BARS.split())
    assert all(words[0] == "none" and words[2] == "missed" for words in told.values())
    gpu.report_all({}, {})
    assert list(lines(capsys, "REPORTED")) == REPORTED


def test_what_others_kept_is_told_with_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "step.json"
    kept.write_text(json.dumps({"measured": {"host_us_per_step_b16": 90.0}}))
    measured = gpu.also([kept, tmp_path / "none.json"])
    assert gpu.report_all({**measured, "qwen3_8b_b1": 234.0}, {}) == 1
    told = lines(capsys, "BAR")
    assert told["host_us_per_step_b16"] == ["90", "<=150", "ok"]
    assert told["qwen3_8b_b1"] == ["234", ">=235", "missed"]
    assert told["gemm_chain_m1"][0] == "none"


def test_a_shape_that_fails_is_why_its_own_bars_are_missed() -> None:
    of_1b, of_8b = (gpu.bars_of(shape) for shape in ("llama_1b", "qwen3_8b"))
    assert of_1b == ["llama_1b_b1"]
    assert {"qwen3_8b_50k_b4", "ready_s_dummy_again"} < set(of_8b)
    assert not {"llama_1b_b1", "gqa_b8_32k_us", "host_us_per_step_b16"} & set(of_8b)
    assert gpu.bars_of("qwen3_30b_a3b") == []


def delta(num_tokens: int, finish_reason: str | None = None, **more: object) -> Delta:
    return Delta(
        request_id="a",
        token_ids=[7] * num_tokens,
        num_cached_tokens=0,
        finish_reason=finish_reason,
        **more,
    )


LOGPROBS = [TokenLogprobs(-0.5, [7], [-0.5])]


@pytest.mark.parametrize(
    ("deltas", "sampling", "said"),
    [
        ([delta(2), delta(1, "length")], GREEDY, []),
        ([delta(1), delta(1, "length")], GREEDY, ["2 tokens of 3"]),
        ([delta(1, "stop", num_sampled_tokens=2)], GREEDY, []),
        ([delta(1, "stop", num_sampled_tokens=9)], GREEDY, ["stopped after 9"]),
        ([delta(1, "abort")], GREEDY, ["ended by abort"]),
        ([delta(3, "length", logprobs=3 * LOGPROBS)], SamplingParams(num_logprobs=1), []),
        ([delta(3, "length", logprobs=LOGPROBS)], SamplingParams(num_logprobs=1), ["1 log-prob"]),
        ([delta(3, "length")], SamplingParams(num_prompt_logprobs=0), ["0 log-probabilities of"]),
    ],
)
def test_a_load_sees_what_is_wrong(
    deltas: list[Delta], sampling: SamplingParams, said: list[str]
) -> None:
    found = wrongs(deltas, [1, 2, 3, 4], 3, sampling)
    assert [a.startswith(b) for a, b in zip(found, said, strict=True)] == [True] * len(said)


def test_a_load_sees_a_leak() -> None:
    held = {"resident": 1 << 30, "gpu": 100 << 30}
    assert grown(held, {"resident": (1 << 30) + MOST_GROWTH_BYTES, "gpu": 101 << 30}) == []
    assert len(grown(held, {"resident": 2 << 30, "gpu": 103 << 30})) == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_seconds_of_load_on_a_cpu_find_nothing() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_load", "tiny", "--device", "cpu"]
    command += ["--seconds", "20", "--users", "6", "--context", "512"]
    done = subprocess.run(
        [*command, "--kv-cache-bytes", "4000000"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "LOAD 20 s seed 1: 0 faults" in done.stdout
    told = json.loads(done.stdout[: done.stdout.index("LOAD")])
    assert told["ends"]["length"] > 5


SUMMARIES = {"memcheck": "ERROR SUMMARY: {} errors", "racecheck": "RACECHECK SUMMARY: {} hazards"}


OURS, VENDORS = (
    f"Error: Race reported between Read access at {name}+0xab0\\n"
    f"    and Write access at {name}+0x2cd0 [512 hazards]\\n"
    for name in ("attend_128_8", "nvjet_sm90_tst_64x64")
)


@pytest.mark.parametrize(
    ("memcheck", "races", "is_clean"),
    [
        (0, [], True),
        (3, [], False),
        (0, [OURS], False),
        (0, [VENDORS], True),
        (0, [VENDORS, OURS, VENDORS], False),
    ],
)
def test_a_sanitizer_that_complains_fails_the_run(
    memcheck: int, races: list[str], is_clean: bool, tmp_path: Path
) -> None:
    """A program in its place runs the load's command, echoed here, and says what it is told to."""
    sanitizer = tmp_path / "compute-sanitizer"
    found = {"memcheck": memcheck, "racecheck": len(races)}
    said = [
        f"{tool}) printf '{''.join(races) * (tool == 'racecheck')}{SUMMARIES[tool].format(n)}' "
        f"> $log ;;"
        for tool, n in found.items()
    ]
    sanitizer.write_text(
        "#!/bin/bash\nlog=${6/\\%p/123}\ncase $2 in\n" + "\n".join(said) + '\nesac\n"${@:11}"\n'
    )
    sanitizer.chmod(0o755)
    command = ["bash", "scripts/sanitize_cuda.sh", "echo", "--seed", "5"]
    environ = {**os.environ, "COMPUTE_SANITIZER": str(sanitizer)}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is is_clean, done.stdout + done.stderr
    ran = [line for line in done.stdout.splitlines() if line.startswith("-m benchmarks.gpu_load")]
    assert len(ran) == (1 if memcheck else 2)
    assert all(line.endswith("--seed 5") for line in ran)


def test_without_a_sanitizer_the_run_says_so(tmp_path: Path) -> None:
    environ = {**os.environ, "COMPUTE_SANITIZER": str(tmp_path / "none")}
    command = ["bash", "scripts/sanitize_cuda.sh", "echo"]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "comes with the CUDA toolkit" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_needs_a_gpu_is_collected_and_skipped_with_a_reason_without_one() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-n", "0", "-m", "cuda"]
    done = subprocess.run(
        [*command, "tests/engine/test_cuda.py", "tests/kernels/test_cuda_kernels.py"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "needs 1 CUDA GPUs, torch sees 0" in done.stdout
    assert "passed" not in done.stdout.splitlines()[-1]
