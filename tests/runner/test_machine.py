# SPDX-License-Identifier: Apache-2.0
"""Cores and memory are what the container allows, not what the host has."""

import os
from pathlib import Path

from tokenlight.runner.machine import read_machine


def _topology(root, siblings):
    for cpu in os.sched_getaffinity(0):
        folder = root / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings(cpu) + "\n")


def test_hardware_threads_of_one_core_count_once(tmp_path):
    _topology(tmp_path, lambda cpu: "0-127")
    assert read_machine(cpus=tmp_path, cgroup=tmp_path).num_cores == 1


def test_each_core_counts(tmp_path):
    _topology(tmp_path, str)
    machine = read_machine(cpus=tmp_path, cgroup=tmp_path)
    assert machine.num_cores == len(os.sched_getaffinity(0))


def test_a_quota_below_one_core_is_one_core(tmp_path):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert read_machine(cpus=tmp_path, cgroup=tmp_path).num_cores == 1


def test_memory_is_the_containers_limit(tmp_path):
    (tmp_path / "memory.max").write_text(f"{300 << 20}\n")
    assert read_machine(cpus=tmp_path, cgroup=tmp_path).memory_bytes == 300 << 20


def test_without_a_limit_memory_is_the_machines(tmp_path):
    (tmp_path / "memory.max").write_text("max\n")
    total = next(t for t in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in t)
    assert read_machine(cgroup=tmp_path).memory_bytes // 1024 == int(total.split()[1])
