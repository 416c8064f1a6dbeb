"""Processors and memory of this process, as its cgroups limit them."""

import math
import os

import pytest

from cluster_serving.protocol.host import cgroup, memory

OF_HOST = 64


@pytest.fixture
def within(tmp_path, monkeypatch):
    """Put this process into cgroups: its line in /proc/self/cgroup, and the files below /sys/fs/cgroup."""
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", tmp_path / "cgroup")
    monkeypatch.setattr(cgroup, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(OF_HOST)))

    def within(line, **files):
        (tmp_path / "cgroup").write_text(f"0::/\n{line}\n")
        for name, text in files.items():
            file = tmp_path / "mounts" / name.replace("__", "/").replace("_DOT_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    return within


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", OF_HOST), ("9900000 100000", OF_HOST)],
)
def test_a_quota_of_version_2_counts(within, quota, cores):
    within("0::/pod/container", pod__container__cpu_DOT_max=quota)
    assert cgroup.cores() == cores


def test_the_smallest_limit_above_counts(within):
    limits = {"pod__cpu_DOT_max": "200000 100000", "pod__container__cpu_DOT_max": "max 100000"}
    within("0::/pod/container", **limits, pod__memory_DOT_max=1 << 30, pod__container__memory_DOT_max="max")
    assert cgroup.cores() == 2
    assert cgroup.memory_limit() == 1 << 30


def test_what_others_of_the_cgroup_use_is_not_available(within, monkeypatch):
    within(
        "0::/pod/container",
        pod__memory_DOT_max=6000,
        pod__memory_DOT_current=5000,
        pod__memory_DOT_stat="anon 4500\ninactive_file 300",
        pod__container__memory_DOT_max="max",
        pod__container__memory_DOT_current=100,
        pod__container__memory_DOT_stat="inactive_file 5",
    )
    assert cgroup.memory_available() == memory.available_memory() == 1300
    within(
        "4:memory:/docker/5f",
        memory__memory_DOT_limit_in_bytes=2000,
        memory__memory_DOT_usage_in_bytes=1900,
        memory__memory_DOT_stat="cache 100\ninactive_file 7\ntotal_inactive_file 50",
    )
    assert cgroup.memory_available() == 150


@pytest.mark.parametrize(("quota", "cores"), [(300000, 3), (-1, OF_HOST)])
def test_a_quota_of_version_1_counts(within, quota, cores):
    # In a container the path is that of the host, and the mount is the container's.
    within("4:cpuacct,cpu:/docker/5f", cpu__cpu_DOT_cfs_quota_us=quota, cpu__cpu_DOT_cfs_period_us=100000)
    assert cgroup.cores() == cores


def test_without_cgroups_the_affinity_counts(within):
    assert cgroup.cores() == OF_HOST
    assert cgroup.memory_limit() == cgroup.memory_available() == math.inf
