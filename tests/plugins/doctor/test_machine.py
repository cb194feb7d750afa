"""Planted faults of an installation and a machine, each found by its name."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

import pytest

from surreal.base.errors import RedisUnavailableError
from surreal.base.system.program import install_command
from surreal.config import load_config
from surreal.plugins.doctor import machine
from surreal.plugins.doctor.finding import Finding, Severity
from tests.full_disk import files_end_at

GIB = 1 << 30


def found(findings: Iterable[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


def test_packages_that_are_missing_or_too_old_are_found() -> None:
    wanted = ["redis[hiredis]<9,>=5.1", "torch>=2.4", "nothing>=1", 'ale-py>=99; extra == "atari"']
    versions = {"redis": "4.0.0", "torch": "2.13.0+cpu"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    findings = list(machine.packages(requirements=lambda name: wanted, version=version))
    assert found(findings) == ["package-version", "package-version"]
    assert "redis is 4.0.0" in findings[1].text and findings[1].remedy == 'pip install "redis[hiredis]<9,>=5.1"'
    assert "nothing is not installed" in findings[2].text


def test_an_installation_that_is_only_a_folder_is_a_hint() -> None:
    def requirements(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    assert found(machine.packages(requirements=requirements)) == ["not-installed"]


@pytest.mark.parametrize(
    ("preset", "override", "extra"),
    [
        ("atari-dqn", "seed=0", "atari"),
        ("lunarlander-dqn", "seed=0", "box2d"),
        ("halfcheetah-sac", "seed=0", "mujoco"),
        ("cartpole-dqn", "checkpoint.stores=[run, 's3://bucket/runs']", "s3"),
        ("cartpole-dqn", "eval.record_video_every=5", "video"),
        ("catch-rlx", "seed=0", "ws"),
    ],
)
def test_an_extra_that_the_configuration_needs_and_nobody_installed_is_found(
    preset: str, override: str, extra: str
) -> None:
    config = load_config(preset, [override])
    (finding,) = machine.extras(config, is_there=lambda module: False)
    assert finding.fault == "extra-missing" and finding.remedy == install_command(extra)
    assert found(machine.extras(config, is_there=lambda module: True)) == []


def test_a_gpu_that_torch_cannot_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidiactl").touch()
    assert found(machine.cuda(devices=list, gpu_files=tmp_path)) == ["torch-without-cuda"]
    assert found(machine.cuda(devices=lambda: ["a GPU"], gpu_files=tmp_path)) == []


def test_a_missing_compiler_is_found(tmp_path: Path) -> None:
    assert found(machine.compiler(variables={"PATH": str(tmp_path)})) == ["no-compiler"]
    (tmp_path / "clang++").touch(mode=0o700)
    assert found(machine.compiler(variables={"PATH": str(tmp_path)})) == ["no-compiler"]
    assert found(machine.compiler(variables={"PATH": str(tmp_path), "CXX": "clang++"})) == []


def test_more_threads_than_cores_are_found() -> None:
    assert found(machine.threads(cores=2, variables={"OMP_NUM_THREADS": "16"}, number=lambda: 16)) == ["torch-threads"]
    assert found(machine.threads(cores=2, variables={}, number=lambda: 2)) == []


def test_a_missing_redis_server_is_found_and_so_is_one_that_does_not_start(tmp_path: Path) -> None:
    def none() -> Path:
        raise RedisUnavailableError("no redis-server found; install Redis")

    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho out of order\nexit 7\n")
    broken.chmod(0o700)
    assert found(machine.redis_program(find=none)) == ["no-redis-server"]
    (finding,) = machine.redis_program(find=lambda: broken)
    assert finding.fault == "redis-server-fails" and "out of order" in finding.text


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    assert found(machine.disk(Path("/proc/surreal"), free_bytes=lambda path: GIB)) == ["folder-not-writable"]
    assert found(machine.disk(tmp_path / "a" / "b", free_bytes=lambda path: GIB)) == []
    assert not (tmp_path / "a").exists()


def test_a_disk_that_is_full_or_almost_so_is_found(tmp_path: Path) -> None:
    assert found(machine.disk(tmp_path, free_bytes=lambda path: 1 << 20)) == ["disk-full"]
    with files_end_at(3):
        assert found(machine.disk(tmp_path, free_bytes=lambda path: GIB)) == ["disk-full"]
    assert found(machine.disk(tmp_path, free_bytes=lambda path: 100 << 20)) == ["disk-low"]


def test_all_folders_of_a_configuration_are_looked_at() -> None:
    config = load_config("cartpole-dqn", ["checkpoint.stores=[run, /data/kept, 's3://bucket/runs']"])
    assert machine.folders(config, Path("runs")) == [Path("runs"), Path("/data/kept")]


def test_a_replay_that_is_larger_than_the_memory_is_found() -> None:
    config = load_config("cartpole-dqn", ["replay.max_bytes=4gb"])
    assert found(machine.memory(config, available_bytes=lambda: 7 * GIB)) == ["memory-low"]
    assert found(machine.memory(config, available_bytes=lambda: 9 * GIB)) == []


def test_too_few_open_files_are_found() -> None:
    config = load_config("catch-rlx")
    (finding,) = machine.open_files(config, limit=lambda: 256)
    assert finding.fault == "too-few-files" and finding.remedy == "ulimit -n 2448"
    assert found(machine.open_files(None, limit=lambda: 1024)) == []


def test_little_shared_memory_and_many_processes_are_found(tmp_path: Path) -> None:
    assert found(machine.shared_memory(tmp_path / "none")) == []
    assert found(machine.shared_memory(tmp_path, free_bytes=lambda path: 1 << 20)) == ["shared-memory-low"]
    config = load_config("cartpole-dqn", ["agent.count=40"])
    assert found(machine.crowd(config, number_of_cores=4)) == ["few-cores"]
    assert found(machine.crowd(load_config("cartpole-dqn"), number_of_cores=1)) == []
