"""The image that `make image` builds: its processes, in containers of this machine's engine.

`make cluster` runs these tests if the image is there.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from surreal import __version__
from tests.ports import claim_port

ROOT = Path(__file__).parents[2]
IMAGE = f"surreal:{__version__}"
#: The exit code of a process that SIGTERM has drained (docs/endings.md).
DRAINED = 143
#: What compose.yaml and the manifests give each container: no rights, and a root that nobody writes to.
CAREFUL = ["--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]


def _engine() -> str | None:
    """The engine that has the image."""
    if not os.environ.get("SURREAL_TEST_CLUSTER"):
        return None
    for name in ("docker", "podman"):
        found = shutil.which(name)
        if found and not subprocess.run([found, "image", "inspect", IMAGE], capture_output=True).returncode:
            return found
    return None


ENGINE = _engine() or ""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not ENGINE, reason=f"for `make cluster`, with {IMAGE} from `make image`"),
]


def engine(*words: str, check: bool = True) -> str:
    done = subprocess.run([ENGINE, *words], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout.strip()


class Container:
    """A container in the background."""

    def __init__(self, *command: str, options: Sequence[str] = ()) -> None:
        self.name = f"surreal-test-{uuid4().hex[:8]}"
        engine("run", "--detach", f"--name={self.name}", *CAREFUL, *options, IMAGE, *command)

    def logs(self) -> str:
        done = subprocess.run([ENGINE, "logs", self.name], capture_output=True, text=True)
        return done.stdout + done.stderr

    def is_healthy(self) -> bool:
        """Run the image's health check once."""
        return not subprocess.run([ENGINE, "healthcheck", "run", self.name], capture_output=True).returncode

    def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        engine("kill", f"--signal={signal_number}", self.name)
        return int(engine("wait", self.name))


@contextmanager
def containers() -> Iterator[list[Container]]:
    """Containers that are removed afterwards; a failure shows their logs."""
    started: list[Container] = []
    try:
        yield started
    except BaseException as error:
        for each in started:
            error.add_note(f"{each.name}:\n{each.logs()[-2000:]}")
        raise
    finally:
        for each in started:
            engine("rm", "--force", "--volumes", each.name, check=False)


def wait_until(condition: Any, what: str, limit_s: float = 120.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"no {what} within {limit_s:g} s"
        time.sleep(0.5)


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"surreal-test-{uuid4().hex[:8]}"
    engine("volume", "create", name)
    yield name
    engine("volume", "rm", "--force", name)


def test_it_runs_as_a_user_without_rights_and_has_at_most_1_3_gb() -> None:
    shown = json.loads(engine("image", "inspect", IMAGE))[0]
    assert shown["Config"]["User"] == "10001:10001"
    assert shown["Size"] <= 1.3e9
    script = "import os; print(os.getuid(), open('/proc/self/status').read())"
    printed = engine("run", "--rm", *CAREFUL, "--entrypoint=python", IMAGE, "-c", script)
    assert printed.startswith("10001 ") and "CapEff:\t0000000000000000" in printed and "NoNewPrivs:\t1" in printed
    written = subprocess.run(
        [ENGINE, "run", "--rm", *CAREFUL, "--entrypoint=sh", IMAGE, "-c", "echo > /opt/surreal/file"],
        capture_output=True,
    )
    assert written.returncode


@pytest.mark.parametrize("role", ["learner", "ps", "agent", "rlx-server", "eval"])
def test_each_role_is_in_it(role: str) -> None:
    assert "--run" in engine("run", "--rm", *CAREFUL, IMAGE, role, "--help")


def test_cartpole_is_solved_and_a_volume_resumes_it(volume: str) -> None:
    run = [*CAREFUL, f"--volume={volume}:/work:U"]
    settings = ["--set", "run.stop_at_return=475", "--seed", "0"]
    engine("run", "--rm", *run, IMAGE, "run", "cartpole-trpo", "--run-dir=runs/it", *settings)
    result = json.loads(engine("run", "--rm", *run, "--entrypoint=cat", IMAGE, "runs/it/result.json"))
    assert result["best"]["mean_return"] >= 475
    more = ["--set", f"run.max_env_steps={result['env_steps'] + 5000}", "--set", "run.stop_at_return=null"]
    engine("run", "--rm", *run, IMAGE, "run", "--resume", "--run-dir=runs/it", *more)
    again = json.loads(engine("run", "--rm", *run, "--entrypoint=cat", IMAGE, "runs/it/result.json"))
    assert again["env_steps"] >= result["env_steps"] + 5000


@pytest.mark.parametrize(
    ("app", "leader", "leading_user", "player"),
    [
        ("k8s/base/app.yaml", "learner", "learner", "agent"),
        ("k8s/base/app.yaml", "learner", "learner", "rlx-server"),
        ("surreal/config/presets/cartpole-a3c.yaml", "ps", "parameter-server", "agent"),
    ],
)
def test_roles_learn_report_their_health_drain_and_continue(
    app: str, leader: str, leading_user: str, player: str, tmp_path: Path, volume: str, free_port: int
) -> None:
    """Each role in its own container, with passwords from files; SIGTERM ends it as documented."""
    subprocess.run(["sh", str(ROOT / "scripts" / "make_passwords.sh"), str(tmp_path / "secrets")], check=True)
    port, rlx_port = str(free_port), str(claim_port())
    # Other users cannot enter the folder: the container's user owns it.
    shared = [
        f"--volume={tmp_path / 'secrets'}:/run/secrets:ro,U",
        f"--volume={ROOT / app}:/etc/app.yaml:ro",
    ]

    def role(name: str, user: str, *more: str, options: Sequence[str] = ()) -> Container:
        login = [f"--env=SURREAL_REDIS=redis://127.0.0.1:{port}", f"--env=SURREAL_REDIS_USER={user}"]
        login += [f"--env=SURREAL_REDIS_PASSWORD_FILE=/run/secrets/{user}", "--env=OMP_NUM_THREADS=1"]
        command = [name, "/etc/app.yaml", "--run=it", "--resume", "--stay", "--connect-timeout=60"]
        command += ["--set=run.stop_at_return=null", *more]
        started.append(Container(*command, options=[*shared, *login, *options]))
        return started[-1]

    def play() -> Container:
        serves = [f"--port={rlx_port}", "--set=rlx.token_file=/run/secrets/rlx-token"] * (player == "rlx-server")
        return role(player, "agent", "--run-dir=/tmp/run", "--index=auto", *serves)

    def status() -> dict[str, Any]:
        login = ["--env=SURREAL_REDIS_USER=observer", "--env=SURREAL_REDIS_PASSWORD_FILE=/run/secrets/observer"]
        words = ["status", "it", f"--redis=redis://127.0.0.1:{port}", "--json"]
        shown = subprocess.run(
            [ENGINE, "run", "--rm", *CAREFUL, *shared, *login, IMAGE, *words], capture_output=True, text=True
        )
        return dict(json.loads(shown.stdout)) if shown.stdout.strip().startswith("{") else {}

    def steps() -> int:
        return int(status().get("env_steps") or 0)

    with containers() as started:
        redis_command = ["redis", "--bind=127.0.0.1", f"--port={port}", "--appendonly=/work/redis"]
        redis_command += ["--acl=/tmp/users.acl", "--secrets=/run/secrets", "--drain=60"]
        redis = Container(*redis_command, options=[*shared, f"--volume={volume}:/work:U"])
        started.append(redis)
        learner = role(leader, leading_user, "--run-dir=/tmp/run")
        agent = play()
        if player == "rlx-server":
            client = ["rlx-client", "CartPole-v1", f"--server=127.0.0.1:{rlx_port}", "--envs=4"]
            started.append(Container(*client, "--token-file=/run/secrets/rlx-token", options=shared))
        evaluation = role("eval", "evaluation", "--run-dir=/tmp/run")
        wait_until(lambda: steps() > 2000, "2000 env steps")
        assert all(each.is_healthy() for each in (learner, agent, evaluation))
        assert agent.end() == DRAINED
        before = steps()
        assert learner.end() == DRAINED and evaluation.end() == DRAINED
        assert steps() == before
        learner = role(leader, leading_user, "--run-dir=/tmp/run")
        last = play()
        wait_until(lambda: steps() > before + 1000, "more env steps")
        last.end(signal.SIGKILL)
        engine("kill", "--signal=SIGTERM", redis.name)
        assert steps() > before + 1000, "Redis serves its clients until they have ended"
        assert learner.end() == DRAINED
        assert engine("wait", redis.name) == "0"
        secrets = [path.read_text().strip() for path in (tmp_path / "secrets").iterdir()]
        assert not any(secret in each.logs() for each in started for secret in secrets)


def test_compose_learns_until_cartpole_is_solved(tmp_path: Path) -> None:
    compose = shutil.which("podman-compose") if "podman" in ENGINE else None
    words = [compose] if compose else [ENGINE, "compose"]
    if subprocess.run([*words, "version"], capture_output=True).returncode:
        pytest.skip(f"{' '.join(words)} is not here")
    trial = subprocess.run([ENGINE, "run", "--rm", IMAGE, "--version"], capture_output=True, text=True)
    if trial.returncode:
        pytest.skip(f"the engine has no networks here: {trial.stderr.strip().splitlines()[-1]}")
    for name in ("compose.yaml", "scripts", "k8s"):
        place = tmp_path / name
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, place)
    subprocess.run(["sh", "scripts/make_passwords.sh", "secrets"], cwd=tmp_path, check=True)

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], cwd=tmp_path, capture_output=True, text=True)

    try:
        up = run("up", "-d", "redis", "learner", "agents", "eval")
        assert up.returncode == 0, up.stderr

        def best() -> float:
            shown = run("exec", "-T", "redis", "surreal", "status", "demo", "--json").stdout
            found = shown[shown.find("{") :] if "{" in shown else "{}"
            return float(json.loads(found).get("best_return") or 0.0)

        wait_until(lambda: best() >= 475, "solved CartPole", 400)
    finally:
        run("down", "--volumes")
