"""The batch script of a run: what it asks Slurm for, what it takes over from the configuration, what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal.base.errors import ConfigError
from surreal.cli.program import main
from surreal.plugins.clusters.redis.server import address_of
from surreal.plugins.clusters.slurm.script import JobOptions, render

PRESET = "cartpole-dqn"


def requests(script: str) -> list[list[str]]:
    """The options for Slurm, of each part of the job."""
    lines = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == "hetjob":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def value_of(script: str, name: str) -> str:
    """What a variable of the script has, after the shell has read its line; of an array, all of it."""
    before, _, _ = script.partition("\nset -euo pipefail")
    program = f'SLURM_JOB_ID=77 SLURM_SUBMIT_DIR=/home/me\n{before}\nprintf "%s\\n" "${{{name}[@]}}"'
    return subprocess.run(["bash", "-uc", program], capture_output=True, text=True, check=True).stdout.rstrip("\n")


def test_redis_and_learner_are_one_part_and_agents_another() -> None:
    first, second = requests(render(PRESET, [], 3, JobOptions(gpus="a100:1", agent_nodes=2, partition="gpu")))
    assert {"--nodes=1", "--ntasks=1", "--cpus-per-task=4", "--gres=gpu:a100:1", "--partition=gpu"} <= set(first)
    assert {"--ntasks=3", "--nodes=2", "--cpus-per-task=1", "--mem-per-cpu=2G", "--partition=gpu"} == set(second)
    assert {"--job-name=cartpole-dqn", "--requeue", "--open-mode=append", "--signal=B:USR1@120"} <= set(first)


def test_an_array_is_handed_in_by_the_only_part() -> None:
    script = render(PRESET, [], 3, JobOptions(has_array=True, partition="long", agent_partition="spot", agent_cpus=2))
    (only,) = requests(script)
    assert "--partition=long" in only
    assert value_of(script, "agent_job") == "--partition=spot"
    assert value_of(script, "agent_task") == "--cpus-per-task=2\n--mem-per-cpu=2G"
    assert (value_of(script, "has_array"), value_of(script, "agents")) == ("1", "3")


def test_what_is_asked_for_is_asked_of_slurm() -> None:
    options = JobOptions(
        account="lab", qos="high", time="1-12:00:00", memory="3G", warning_s=300, is_requeued=False,
        sbatch=("--constraint=skylake",),
    )  # fmt: skip
    first, second = requests(render(PRESET, [], None, options))
    assert {"--account=lab", "--qos=high", "--time=1-12:00:00", "--mem-per-cpu=768M", "--no-requeue"} <= set(first)
    assert "--signal=B:USR1@300" in first
    assert "--constraint=skylake" in first
    assert "--constraint=skylake" in second
    assert "--ntasks=2" in second  # agent.count of the preset


def test_without_a_size_the_first_node_has_room_for_redis_and_the_learner() -> None:
    (first, _) = requests(render(PRESET, ["redis.maxmemory=4gb"], 2, JobOptions(cpus=2)))
    assert "--mem-per-cpu=4096M" in first
    assert value_of(render(PRESET, ["redis.maxmemory=4gb"], 2, JobOptions()), "redis_options").split() == [
        *("--maxmemory", str(4 << 30), "--appendonly")
    ]


def test_the_experience_is_on_the_nodes_disk_where_its_variable_says() -> None:
    script = render(PRESET, ["redis.maxmemory=1gb"], 2, JobOptions(local_disk="${HOME}/here"))
    assert value_of(script, "redis_options").split("\n")[-2:] == ["--local-disk", f"{Path.home()}/here"]


def test_each_job_has_a_run_of_its_own_unless_one_is_named() -> None:
    assert value_of(render(PRESET, [], 1, JobOptions()), "run") == "cartpole-dqn-77"
    assert value_of(render(PRESET, [], 1, JobOptions(run="demo")), "run") == "demo"
    assert value_of(render(PRESET, [], 1, JobOptions()), "root") == "/home/me/runs"


@pytest.mark.parametrize("name", ["my app", "it's", 'say "x"', "$HOME", "a;b", "`id`"])
def test_paths_and_settings_of_any_form_reach_the_processes_as_they_are(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "app.yaml").write_text("version: 1\nname: mine\nenv: {id: CartPole-v1}\n")
    settings = ["seed=3", f"callbacks=[{{class: mine.Note, args: {{note: {json.dumps(name)}}}}}]"]
    script = render(str(folder / "app.yaml"), settings, 2, JobOptions(folder=folder / "shared", interface="ib0"))
    assert value_of(script, "config") == str(folder / "app.yaml")
    assert value_of(script, "root") == str(folder / "shared")
    assert value_of(script, "settings") == "\n".join(
        word for each in [*settings, "agent.count=2"] for word in ("--set", each)
    )
    assert value_of(script, "redis_options").endswith("--interface\nib0")


def test_the_environment_is_activated_as_it_was_told() -> None:
    script = render(PRESET, [], 1, JobOptions(activate="module load python && source 'my env/bin/activate'"))
    assert "\n    module load python && source 'my env/bin/activate'\n" in script


def test_servers_of_the_configuration_are_used_and_none_is_started(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    path.write_text("version: 1\nname: mine\nenv: {id: CartPole-v1}\nredis: {address: 'redis://:hunter2@store:6379'}\n")
    script = render(str(path), [], 2, JobOptions())
    assert value_of(script, "redis_options") == ""
    assert "hunter2" not in script


def test_parameter_servers_take_the_learners_place() -> None:
    script = render("cartpole-a3c", ["parameter_server.servers=2", "learner.gradients=agents"], 2, JobOptions())
    assert value_of(script, "parameter_servers") == "2"
    assert (
        value_of(render(PRESET, ["eval.enabled=false", "run.stop_at_return=null"], 2, JobOptions()), "has_evaluation")
        == "0"
    )


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(has_array=True, activate="source a/bin/activate")])
def test_shellcheck_has_nothing_to_say(options: JobOptions, require_tool: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(render(PRESET, ["name=x", "env.id='a b'"], 2, options))
    checked = subprocess.run(
        [require_tool("shellcheck"), "--exclude=SC1091", path], capture_output=True, text=True, check=False
    )
    assert checked.stdout == ""
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cartpole-dqm"], "cartpole-dqm"),
        ([PRESET, "--set", "learner.batch_sise=3"], "learner.batch_size"),
        ([PRESET, "--agents", "0"], "--agents is 0; it must be >= 1"),
        ([PRESET, "--set", "agent.count=0"], "agent.count (--set) is 0"),
        ([PRESET, "--set", "run.deterministic=true"], "run.deterministic (--set) is true"),
        ([PRESET, "--cpus", "0"], "--cpus is 0; it must be >= 1"),
        ([PRESET, "--time", "soon"], "--time is 'soon'; it must be minutes"),
        ([PRESET, "--memory", "8 gigs"], "--memory is '8 gigs'; it must be a number with K, M, G or T"),
        ([PRESET, "--partition", "a b"], "--partition is 'a b'; it must be a word"),
        ([PRESET, "--sbatch", "--comment=a\nrm -rf"], "it must be an option of sbatch on one line"),
        ([PRESET, "--local-disk", "a b"], "--local-disk is 'a b'; it must be an absolute path"),
        ([PRESET, "--local-disk", "/tmp", "--no-appendonly"], "leave it out with --no-appendonly"),
        ([PRESET, "--local-disk", "/tmp", "--set", "redis.address=store:6379"], "--local-disk is for the job's own"),
        ([PRESET, "--array", "--agent-nodes", "2"], "leave it out with --array"),
        ([PRESET, "--run", "a b"], "a b"),
        ([PRESET, "--set", "redis.address=redis://:hunter2@host"], "--set redis.address has a password"),
        (["cartpole-rlx"], "rlx.servers"),
        ([PRESET, "--set", "env.id=Missing-v0"], "Missing-v0"),
        ([PRESET, "--set", "run.max_env_steps=600"], "the run would end before it learns"),
        ([PRESET, "-o", "/nowhere/job.sh"], "/nowhere/job.sh cannot be written: no such file or directory"),
    ],
    ids=lambda value: value if isinstance(value, str) else shlex.join(value[1:] or value),
)
def test_what_makes_no_sense_is_one_clear_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", "render", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert problem in printed.err
    assert "hunter2" not in printed.err


@given(number=st.integers(1, 10_000), unit=st.sampled_from("KMGT"))
def test_memory_is_counted_in_megabytes_and_never_less(number: int, unit: str) -> None:
    found = JobOptions(memory=f"{number}{unit}").memory_mb
    assert found is not None
    assert 0 <= found * 2**20 - number * 1024 ** (" KMGT".index(unit)) < 2**20


def test_redis_listens_where_it_is_told() -> None:
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"--interface is 'ib7'; .* has .*lo"):
        address_of("ib7")
