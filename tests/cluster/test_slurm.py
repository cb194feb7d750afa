"""Batch scripts that `surreal slurm render` writes, carried out by a real slurmctld and four real slurmd.

`make cluster` (SURREAL_TEST_CLUSTER=1) solves the task as it is, and in every way that a job goes on; it takes minutes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cluster.slurm import PROGRAMS, SlurmCluster
from tests.warm_python import environment_of_a_user

pytestmark = pytest.mark.timeout(600)

IS_LONG = bool(os.environ.get("SURREAL_TEST_CLUSTER"))
#: A goal that is soon reached; CartPole itself is solved at 475.
NEAR = ("--set", "run.stop_at_return=195", "--set", "eval.confirm_episodes=0")
GOAL = 475 if IS_LONG else 195
#: So that agents have nodes of their own.
NODES = ("--cpus", "2", "--agent-cpus", "2", "--memory", "1G", "--agent-memory", "100M", "--interface", "lo")
ENDLESS = ("--set", "run.stop_at_return=null", "--set", "run.max_env_steps=null")

only_long = pytest.mark.skipif(not IS_LONG, reason="takes a minute: make cluster")


@pytest.fixture
def slurm(require_tool: Callable[..., str]) -> Iterator[SlurmCluster]:
    """A cluster, in a folder that jobs share."""
    for program in PROGRAMS:
        require_tool(program)
    if os.geteuid() != 0:
        pytest.fail("slurmd has to be root") if "CI" in os.environ else pytest.skip("slurmd has to be root")
    # Short, for the path of a socket.
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    (folder / "tmp").mkdir()
    environment = {
        **environment_of_a_user(),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(folder / "tmp"),
    }
    with SlurmCluster(folder, environment) as cluster:
        yield cluster


def test_a_node_of_an_array_of_agents_fails_and_the_run_is_solved(slurm: SlurmCluster) -> None:
    job = start(slurm, "cartpole-dqn", "--agents", "2", "--array", *ENDLESS)  # however quick the machine
    slurm.wait_for(lambda: rounds(slurm) and rounds(slurm)[-1]["updates"], "learning")
    status = json.loads(slurm.call("surreal", "status", "--run-dir", str(run_dir(slurm)), "--json"))
    assert (status["run"], status["state"]) == (f"cartpole-dqn-{job}", "running")
    assert places_of_the_password(slurm) == [run_dir(slurm) / "redis.address"]
    agent = f"{(run_dir(slurm) / 'agents.job').read_text().strip()}_1"
    slurm.fail(slurm.field(agent, "BatchHost"))
    slurm.wait_for(lambda: slurm.field(agent, "Restarts") == "1", "the agent's second start")
    before = len(rounds(slurm))
    is_solved = lambda: any(each["mean_return"] >= GOAL for each in rounds(slurm)[before:])  # noqa: E731
    slurm.wait_for(is_solved, f"a mean return of {GOAL}", timeout_s=400.0)
    slurm.call("surreal", "stop", "--run-dir", str(run_dir(slurm)))
    wait_for_end(slurm, job)
    assert (slurm.field(job, "JobState"), slurm.field(job, "ExitCode")) == ("COMPLETED", "0:0"), slurm.logs()
    assert (read_result(slurm)["status"], read_result(slurm)["reason"]) == ("finished", "surreal stop")
    assert (slurm.field(job, "Restarts"), slurm.field(agent, "Restarts")) == ("0", "1")
    assert slurm.call("squeue", "--noheader").split() == []


@only_long
@pytest.mark.parametrize("event", ["a node fails", "requeue", "time"])
def test_a_job_that_is_put_back_into_the_queue_goes_on(slurm: SlurmCluster, event: str) -> None:
    job = start(slurm, "cartpole-dqn", "--agents", "2", "--set", "checkpoint.interval_updates=20", *NEAR)
    slurm.wait_for(lambda: len(list((run_dir(slurm) / "checkpoints").glob("*.safetensors"))) > 1, "checkpoints")
    match event:
        case "a node fails":
            slurm.fail("n1")
        case "requeue":
            slurm.call("scontrol", "requeue", job)
        case "time":
            slurm.call("scancel", "--batch", "--signal=USR1", job)
    slurm.wait_for(lambda: "start 2, on" in log(slurm, job), "the second start")
    before = read_result(slurm)
    assert before["status"] == "interrupted"
    wait_for_end(slurm, job)
    assert (slurm.field(job, "JobState"), slurm.field(job, "ExitCode")) == ("COMPLETED", "0:0"), slurm.logs()
    assert slurm.field(job, "Restarts") == "1"
    after = read_result(slurm)
    assert after["run"] == before["run"]
    assert after["reason"].startswith("stop_at_return")
    assert after["env_steps"] > before["env_steps"] > 0
    assert f"{before['updates']} updates" in log(slurm, job)  # from the checkpoint of its drain


@only_long
def test_a_job_that_is_cancelled_leaves_a_checkpoint_and_a_further_one_goes_on(slurm: SlurmCluster) -> None:
    arguments = ("cartpole-dqn", "--agents", "1", "--run", "demo", "--set", "checkpoint.interval_updates=20")
    arguments = (*arguments, *ENDLESS, "--set", "eval.enabled=false")
    job = start(slurm, *arguments)
    slurm.wait_for(lambda: list(run_dir(slurm).glob("checkpoints/*.safetensors")), "a checkpoint")
    slurm.call("scancel", job)
    wait_for_end(slurm, job)
    before = read_result(slurm)
    assert (before["status"], before["exit_code"]) == ("interrupted", 143)
    assert not (run_dir(slurm) / "redis.address").exists()
    job = start(slurm, *arguments, "--set", "run.max_time_s=5")
    wait_for_end(slurm, job)
    assert slurm.field(job, "ExitCode") == "0:0", slurm.logs()
    after = read_result(slurm)
    assert after["reason"].startswith("max_time_s")
    assert after["run"] == before["run"] == "demo"
    assert after["env_steps"] > before["env_steps"]


@only_long
def test_a_run_that_cannot_begin_ends_the_job_with_its_exit_code(slurm: SlurmCluster) -> None:
    job = start(slurm, "cartpole-dqn", "--agents", "1", "--set", "env.id=Missing-v0")
    wait_for_end(slurm, job)
    assert (slurm.field(job, "JobState"), slurm.field(job, "ExitCode")) == ("FAILED", "1:0"), slurm.logs()
    assert "Missing-v0" in log(slurm, job)


def start(slurm: SlurmCluster, *arguments: str) -> str:
    """Render a script and hand it in."""
    slurm.call("surreal", "slurm", "render", *arguments, *NODES, "--no-check", "-o", "job.sh")
    return slurm.sbatch("job.sh")


def wait_for_end(slurm: SlurmCluster, job: str) -> None:
    """Wait until a job is over, with all that it has started."""
    slurm.wait_for(lambda: not slurm.call("squeue", "--noheader"), f"the end of job {job}", timeout_s=400.0)


def run_dir(slurm: SlurmCluster) -> Path:
    """The folder of the only run."""
    (found,) = slurm.wait_for(lambda: list((slurm.folder / "runs").glob("*")), "the run's folder")
    return found


def read_result(slurm: SlurmCluster) -> dict[str, Any]:
    """How the run ended."""
    found: dict[str, Any] = json.loads((run_dir(slurm) / "result.json").read_text())
    return found


def rounds(slurm: SlurmCluster) -> list[dict[str, Any]]:
    """The evaluation's rounds so far."""
    path = run_dir(slurm) / "eval" / "scores.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    entries = (json.loads(line) for line in lines if line.endswith("\n"))
    return [entry for entry in entries if entry["kind"] == "round"]


def places_of_the_password(slurm: SlurmCluster) -> list[Path]:
    """Files of the run and of Slurm that have it; it is on no command line, and only its owner may read its file."""
    address = run_dir(slurm) / "redis.address"
    password = urlsplit(address.read_text().split()[0]).password or ""
    assert len(password) > 20
    assert address.stat().st_mode & 0o077 == 0
    lines = slurm.command_lines()
    assert any(" learner " in line for line in lines)
    assert not any(password in line for line in lines)
    found = []
    for path in slurm.folder.rglob("*"):
        with suppress(OSError):  # it is gone by now, or a folder, or a socket
            if password.encode() in path.read_bytes():
                found.append(path)
    return found


def log(slurm: SlurmCluster, job: str) -> str:
    """What the script and what it runs have said."""
    path = next(slurm.folder.glob(f"*-{job}.log"), None)
    return "" if path is None else path.read_text(errors="replace")
