# SPDX-License-Identifier: Apache-2.0
"""Where the time to ready went: phases add up to what passed since the process began."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.models.tiny import write_tiny_llama
from tokenlight.config import EngineConfig, ModelConfig
from tokenlight.runner import ModelRunner
from tokenlight.runner.timeline import Timeline, process_age_s


def test_phases_and_the_rest_add_up() -> None:
    timeline = Timeline()
    for phase in ("weights", "capture", "weights"):
        with timeline.during(phase):
            time.sleep(0.01)
    fields = timeline.fields()
    assert list(fields) == ["before_s", "weights_s", "capture_s", "other_s", "total_s"]
    assert fields["weights_s"] >= 0.02
    assert fields["capture_s"] >= 0.01
    parts = [seconds for name, seconds in fields.items() if name != "total_s"]
    assert sum(parts) == pytest.approx(fields["total_s"])
    assert min(parts) > -1e-6


def test_a_phase_that_fails_is_counted() -> None:
    timeline = Timeline()
    with pytest.raises(ValueError, match="no"), timeline.during("weights"):
        raise ValueError("no")
    assert "weights_s" in timeline.fields()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_process_knows_its_age() -> None:
    """More than a child that it has just started, and less than the machine is up."""
    started_s = time.monotonic()
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        child_age_s = process_age_s(Path(f"/proc/{child.pid}/stat"))
        # Linux tells the start in hundredths of a second.
        assert -0.02 < child_age_s < time.monotonic() - started_s + 0.02
        child.communicate(b"\n")
    assert child_age_s < process_age_s() < time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_name_with_blanks_and_parentheses_is_no_field(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    fields = ["S", *map(str, range(1, 19)), "100", "7"]
    stat.write_text(f"{os.getpid()} (a) b (c) {' '.join(fields)}")
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert process_age_s(stat) == pytest.approx(up_s - 1.0, abs=1.0)
    assert process_age_s(tmp_path / "none") == 0.0


def test_a_start_is_told_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(model=ModelConfig(model=str(path)), device="cpu", num_threads=1)
    with caplog.at_level("INFO", "tokenlight.runner"):
        ModelRunner.load(config)
    said = [record.getMessage() for record in caplog.records]
    (line,) = [each for each in said if each.startswith("ready ")]
    told = {name: float(value) for name, value in re.findall(r"(\w+)=([-\d.]+)", line)}
    assert list(told) == [
        *("before_s", "weights_s", "program_s", "first_steps_s", "other_s", "total_s"),
    ]
    assert 0 < told["weights_s"] < told["total_s"]
