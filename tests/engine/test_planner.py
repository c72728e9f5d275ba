# SPDX-License-Identifier: Apache-2.0
"""An engine has one scheduler, or one per group of ranks; what each did can be repeated."""

from pathlib import Path

import numpy as np
import pytest

from tokenlight.control import GroupedScheduler, Scheduler, SchedulerConfig
from tokenlight.control.replay import replay
from tokenlight.engine.planner import make_planner

SETTINGS = SchedulerConfig(
    num_blocks=16,
    block_tokens=4,
    max_num_requests=4,
    max_step_tokens=16,
    max_model_tokens=64,
    hash_key=bytes(16),
)


@pytest.mark.parametrize("num_groups", [1, 2])
def test_every_schedule_is_recorded_and_repeats_itself(tmp_path: Path, num_groups: int):
    planner = make_planner(SETTINGS, num_groups, str(tmp_path / "record"))
    assert isinstance(planner, Scheduler if num_groups == 1 else GroupedScheduler)
    for id in range(3):
        planner.submit(id, np.full(6, id, np.int32), max_new_tokens=3)
    num_told = 0
    while plan := planner.plan(0):
        told = planner.commit(plan.guard, np.full(plan.num_sampled, 7, np.int32))
        num_told += sum(len(delta.token_ids) for delta in told)
    assert num_told == 9
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == (
        ["record"] if num_groups == 1 else ["record.0", "record.1"]
    )
    for file in files:
        num_calls, difference = replay(file)
        assert num_calls >= 4
        assert difference is None


def test_without_a_record_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    make_planner(SETTINGS, 2, None)
    assert not list(tmp_path.iterdir())
