# SPDX-License-Identifier: Apache-2.0
"""The thread pool: it changes no result, survives fork and company, and sleeps when idle."""

import math
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tokenlight import kernels
from tokenlight.kernels import FORMATS, _cpu

pytestmark = pytest.mark.usefixtures("restored_threads")


def product(seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    x_TK, weight = torch.randn(33, 96, generator=g), torch.randn(300, 96, generator=g)
    return kernels.linear(x_TK, weight, None, format=FORMATS["f32"])


def test_default_is_the_physical_cores_we_may_use() -> None:
    """Counted again in Python, in a process that may use one core only."""
    # The extension alone: with torch, a process takes over a second to start.
    code = f"import sys; sys.path.append({str(Path(_cpu.__file__).parent)!r}); import _cpu"
    allowed = sorted(os.sched_getaffinity(0))
    for cores in (allowed[:1], allowed):
        siblings = set()
        for core in cores:
            path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
            with open(path) as listing:
                siblings.add(listing.read())
        out = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import os; os.sched_setaffinity(0, {cores}); {code}; print(_cpu.num_threads())",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(out.stdout) == len(siblings)


@pytest.mark.parametrize("num_threads", [1, 2, 3, 7])
def test_the_number_of_threads_changes_no_bit(num_threads: int) -> None:
    want = product(0)
    kernels.set_num_threads(num_threads)
    assert _cpu.num_threads() == num_threads
    assert torch.equal(product(0), want)


def test_no_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        kernels.set_num_threads(0)


def test_callers_on_several_threads_take_turns() -> None:
    _cpu.set_num_threads(2)
    want = {seed: product(seed) for seed in range(4)}
    wrong = []

    def call(seed: int) -> None:
        wrong.extend(seed for _ in range(30) if not torch.equal(product(seed), want[seed]))

    callers = [threading.Thread(target=call, args=(seed,)) for seed in want]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_as_well() -> None:
    _cpu.set_num_threads(2)
    want = product(1)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(product(1), want) and _cpu.num_threads() == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(product(1), want)


def test_an_idle_pool_uses_no_cpu() -> None:
    """The least of some: on a busy machine a thread may come to its first spins late."""
    _cpu.set_num_threads(4)
    product(2)
    used_s = math.inf
    for _ in range(8):
        before_s = time.process_time()
        time.sleep(0.2)
        used_s = min(used_s, time.process_time() - before_s)
        if used_s < 0.004:
            break
    assert used_s < 0.004
