# SPDX-License-Identifier: Apache-2.0
"""A recorded run replays bit for bit; one that was changed does not; the file is private."""

import json
import re
import stat

import numpy as np
import pytest

from tests.control.device import Device
from tokenlight.base.errors import ConfigError
from tokenlight.control import DuplicateRequest, SchedulerConfig
from tokenlight.control.record import RecordingScheduler
from tokenlight.control.replay import main, replay


def ids(*tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


@pytest.fixture
def recording(tmp_path):
    """A run with hits, a preemption, an abort, drafts, an expiry and a refused call."""
    config = SchedulerConfig(
        num_blocks=9,
        block_tokens=4,
        max_num_requests=3,
        max_step_tokens=8,
        max_model_tokens=36,
        hash_key=b"0123456789abcdef",
        output_margin_tokens=0,
    )
    path = tmp_path / "run.jsonl"
    path.write_text("something older")
    path.chmod(0o644)
    scheduler, device = RecordingScheduler(config, path), Device(config, 9)
    scheduler.submit(1, ids(*[3] * 9), max_new_tokens=20)
    scheduler.submit(2, ids(*[3] * 8, 6), max_new_tokens=20, stop_token_ids=ids(99))
    scheduler.submit(3, ids(*[4] * 5), max_new_tokens=8, cache_salt=b"t", deadline_us=3)
    scheduler.submit(4, ids(*[5] * 5), max_new_tokens=8, priority=1, adapter_id=2)
    with pytest.raises(DuplicateRequest):
        scheduler.submit(1, ids(1), max_new_tokens=1)
    scheduler.abort(4)
    now_us = 0
    while plan := scheduler.plan(now_us):
        now_us += 1
        if plan.num_sampled != len(set(plan.sampled_requests.tolist())):
            accepted = np.ones(len(set(plan.sampled_requests.tolist())), np.int32)
            scheduler.commit(plan.guard, device.execute(plan), accepted)
        else:
            scheduler.commit(plan.guard, device.execute(plan))
        if now_us % 3 == 0:
            scheduler.propose(1, ids(1, 2))
    assert scheduler.stats().num_preemptions > 0
    return path


def test_replays_bit_for_bit(recording, capsys):
    num_calls, difference = replay(recording)
    assert difference is None
    assert num_calls > 30
    assert main([str(recording)]) == 0
    assert "all answered as recorded" in capsys.readouterr().out


def test_finds_a_difference(recording, capsys):
    lines = recording.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if json.loads(line)[0] == "submit")
    verb, arguments, answer = json.loads(lines[at])
    arguments["max_new_tokens"] -= 1
    lines[at] = json.dumps([verb, arguments, answer])
    recording.write_text("\n".join(lines))
    assert main([str(recording)]) == 1
    assert "differs" in capsys.readouterr().out


def test_only_the_owner_can_read_it(recording):
    assert stat.S_IMODE(recording.stat().st_mode) == 0o600


def test_refuses_what_is_no_recording(tmp_path):
    path = tmp_path / "other.jsonl"
    path.write_text('["plan", {}, null]\n')
    with pytest.raises(ConfigError, match="not a recording"):
        replay(path)
    assert main([]) == 2


def test_what_cannot_be_replayed_is_told(recording, tmp_path, capsys):
    cut = tmp_path / "cut"
    cut.write_bytes(recording.read_bytes()[:-5])
    for path, fault in ((tmp_path / "absent", "No such file"), (cut, "Unterminated|Expecting")):
        assert main([str(path)]) == 2
        assert re.search(rf"^{path} cannot be replayed: .*({fault})", capsys.readouterr().err)
