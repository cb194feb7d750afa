"""What the batch script does, with small programs in the place of Slurm's and of Surreal's."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import psutil
import pytest

from surreal.plugins.clusters.slurm.script import JobOptions, render
from surreal.run.process.ending import ExitCode

#: In the place of `surreal`: notes what it was called with, and then is what the test says of its role.
SURREAL = r"""#!/bin/bash
echo "$*" >>calls
if [[ $1 == slurm ]]; then
    while [[ $1 != --run-dir ]]; do shift; done
    trap 'rm -f "$2/redis.address"; exit 0' TERM
    printf 'redis://:%s@host:1\ndemo\n' "$RANDOM" >"$2/redis.address"
    while [[ ! -e redis.dies ]]; do sleep 0.02; done
    exit 1
fi
echo "$SURREAL_REDIS" >"$1.address"
trap 'exit 143' TERM
[[ ! -e $1 ]] || source "$1"
while [[ ! -e over ]]; do sleep 0.02; done
"""
#: Of Slurm: each notes its call; srun does what its tasks would, one after the other.
SLURM = {
    "scancel": "if [[ $1 == 7 ]]; then : >over; elif [[ -e task ]]; then kill $(<task) $(pgrep -P $(<task)); fi",
    "scontrol": "kill -TERM $PPID",
    "squeue": "[[ -e over ]] || echo 7",
    "sbatch": "echo '7;cluster'",
    "srun": 'echo $$ >task; for last in "$@"; do :; done; SLURM_PROCID=3 exec bash -c "$last"',
}


class Job:
    """A script that runs in a folder of its own.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / "bin"
        programs.mkdir()
        texts = {
            name: f'#!/bin/bash\nline="{name} $*"\necho "${{line%%$\'\\n\'*}}" >>calls\n{text}\n'
            for name, text in SLURM.items()
        }
        for name, text in {**texts, "surreal": SURREAL}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SURREAL_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "77",
            "SLURM_SUBMIT_DIR": str(folder),
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self, options: JobOptions = JobOptions(), **variables: str) -> subprocess.Popen[str]:  # noqa: B008
        """Start it; with these variables besides."""
        (self.folder / "job.sh").write_text(render("cartpole-dqn", ["run.restart_limit=1"], 2, options))
        self.process = subprocess.Popen(
            ["bash", "job.sh"],
            cwd=self.folder,
            env={**self._environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def calls(self, beginning: str) -> list[str]:
        """What was called, of the programs whose calls begin so."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(beginning)]

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen: {self.calls('')}"
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        """Wait for its end; gives its exit code and what it said."""
        assert self.process is not None
        output, _ = self.process.communicate(timeout=40)
        return self.process.returncode, output


def words_for(folder: Path) -> str:
    """What every process of the run is told."""
    settings = "--set run.restart_limit=1 --set agent.count=2"
    return f"--config cartpole-dqn {settings} --run cartpole-dqn-77 --run-dir {folder} --resume"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    if job.process is not None:
        for process in psutil.process_iter():
            try:
                if Path(process.cwd()).is_relative_to(tmp_path):
                    process.kill()
            except psutil.Error:
                continue
        job.process.communicate()


def test_all_processes_of_the_run_are_told_the_same_and_end_with_it(job: Job) -> None:
    job.start()
    roles = ("learner", "eval", "agent")
    job.wait_for(lambda: all(job.calls(role) for role in roles), "the processes")
    folder = job.folder / "runs" / "cartpole-dqn-77"
    common = words_for(folder)
    assert [job.calls(role) for role in roles] == [
        [f"learner {common}"], [f"eval {common}"], [f"agent --index 3 {common}"],
    ]  # fmt: skip
    address = (folder / "redis.address").read_text().split()[0]
    job.wait_for(lambda: all((job.folder / f"{role}.address").exists() for role in roles), "their beginning")
    (job.folder / "over").touch()
    code, output = job.end()
    assert code == 0
    assert f"the run has ended with exit code 0; what it leaves is in {folder}" in output
    assert {(job.folder / f"{role}.address").read_text().strip() for role in roles} == {address}
    assert not (folder / "redis.address").exists()
    assert not job.calls("scancel")


def test_a_run_goes_on_with_the_configuration_in_its_folder(job: Job) -> None:
    folder = job.folder / "runs" / "demo"
    folder.mkdir(parents=True)
    (folder / "app.yaml").touch()
    (job.folder / "over").touch()
    job.start(JobOptions(run="demo"), SLURM_RESTART_COUNT="2")
    code, output = job.end()
    assert (code, "run demo in" in output, "start 3, on" in output) == (0, True, True)
    assert f"--config {folder}/app.yaml" in job.calls("learner")[0]


def test_what_a_signal_kills_is_started_again_and_what_fails_is_not(job: Job) -> None:
    (job.folder / "learner").write_text("(($(grep -c ^learner calls) > 1)) || kill -KILL $$; exit 3")
    job.start()
    code, output = job.end()
    assert (code, len(job.calls("learner"))) == (3, 2)
    assert "surreal learner ended with 137 and is started again" in output
    assert "the run drains: the learner has ended with exit code 3" in output
    assert len(job.calls("srun")) == 1  # its agents were told


def test_it_gives_up_what_is_killed_again_and_again(job: Job) -> None:
    (job.folder / "learner").write_text("kill -KILL $$")
    job.start(JobOptions(has_array=True))
    code, _ = job.end()
    assert (code, len(job.calls("learner"))) == (137, 2)


@pytest.mark.parametrize(("code", "calls"), [(1, 1), (4, 2), (6, 2), (7, 2), (137, 2)])
def test_codes_that_the_launcher_forgives_are_forgiven_here(code: int, calls: int) -> None:
    assert ExitCode.RANK_KILLED == 4
    assert ExitCode.NAME_LOST == 6
    assert ExitCode.NO_MEMORY == 7
    program = f"die() {{ calls=$((calls + 1)); ((calls < 2)) && return {code}; return 0; }}"
    script = f"set -euo pipefail; restart_limit=1; calls=0; {again()}{program}\nagain die x || true; echo $calls"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == f"{calls}\n"


def again() -> str:
    """The function of the script that starts a program again."""
    job = (files("surreal.plugins.clusters.slurm") / "job.sh").read_text()
    return job[job.index("again() {") : job.index("\n}\n", job.index("again() {")) + 3]


def test_deaths_a_minute_apart_are_forgiven() -> None:
    program = "die() { SECONDS=$((SECONDS + 61)); calls=$((calls + 1)); ((calls < 5)) && return 137; return 0; }"
    script = f"set -euo pipefail; restart_limit=1; calls=0; {again()}{program}\nagain die x; echo $calls"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "5\n"


@pytest.mark.parametrize(("is_requeued", "count"), [(True, 1), (False, 0)])
def test_at_usr1_the_run_drains_and_the_job_goes_back_into_the_queue(job: Job, is_requeued: bool, count: int) -> None:
    process = job.start(JobOptions(is_requeued=is_requeued))
    job.wait_for((job.folder / "agent.address").exists, "an agent")
    process.send_signal(signal.SIGUSR1)
    code, output = job.end()
    assert "the run drains: its time is nearly up" in output
    assert job.calls("scancel") == ["scancel --signal=TERM 77"]
    assert job.calls("scontrol") == ["scontrol requeue 77"] * count
    assert code == (-signal.SIGTERM if is_requeued else 143)
    assert (len(job.calls("learner")), len(job.calls("srun"))) == (1, 1)


def test_at_usr1_a_run_that_is_over_is_not_requeued(job: Job) -> None:
    (job.folder / "learner").write_text("trap 'exit 0' TERM")
    process = job.start()
    job.wait_for((job.folder / "agent.address").exists, "an agent")
    process.send_signal(signal.SIGUSR1)
    assert job.end()[0] == 0
    assert not job.calls("scontrol")


def test_at_term_the_run_drains_and_slurm_decides_what_follows(job: Job) -> None:
    process = job.start()
    job.wait_for((job.folder / "agent.address").exists, "an agent")
    os.killpg(process.pid, signal.SIGTERM)  # as Slurm tells all processes
    code, output = job.end()
    assert code == 143
    assert "the run drains: the job is told to end" in output
    assert not job.calls("scontrol")


def test_without_redis_the_run_drains_and_fails(job: Job) -> None:
    job.start()
    job.wait_for((job.folder / "agent.address").exists, "an agent")
    (job.folder / "redis.dies").touch()
    code, output = job.end()
    assert code == 1
    assert "the run drains: Redis has ended" in output


def test_a_redis_that_does_not_start_ends_the_job(job: Job) -> None:
    (job.folder / "bin" / "surreal").write_text("#!/bin/bash\necho 'error: no room' >&2\nexit 3\n")
    job.start()
    code, output = job.end()
    assert (code, "error: no room" in output) == (3, True)


def test_an_array_of_agents_is_handed_in_and_taken_back(job: Job) -> None:
    folder = job.folder / "runs" / "cartpole-dqn-77"
    folder.mkdir(parents=True)
    (folder / "agents.job").write_text("6\n")  # of a start before
    process = job.start(JobOptions(has_array=True, agent_partition="spot"))
    job.wait_for(lambda: job.calls("sbatch"), "the array")
    assert job.calls("scancel") == ["scancel 6"]
    (call,) = job.calls("sbatch")
    assert "--array=0-1 --nodes=1 --ntasks=1 --gres=none --partition=spot --cpus-per-task=1 --mem-per-cpu=2G" in call
    job.wait_for(lambda: (folder / "agents.job").read_text() == "7\n", "its number")
    job.wait_for((job.folder / "eval.address").exists, "the evaluation")
    *_, run, place, config, first, second = call.split()
    agent = subprocess.run(
        ["bash", "-c", ': >over; exec bash job.sh "$@"', "job.sh", run, place, config, f"{first} {second}"],
        cwd=job.folder,
        env={**job._environment, "SLURM_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert agent.returncode == 0, agent.stderr
    assert job.calls("agent") == [f"agent --index 1 {words_for(folder)}"]
    assert job.end()[0] == 0
    assert process.returncode == 0
    assert not (folder / "agents.job").exists()
