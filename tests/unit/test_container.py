"""Dockerfile and compose.yaml: careful, and with commands that processes take."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from surreal import __version__
from surreal.config import load_config
from surreal.plugins.clusters.kubernetes.manifest import read_base
from surreal.plugins.clusters.kubernetes.redis import REDIS_USERS
from surreal.run.process.arguments import parse
from surreal.run.process.roles import ROLES
from tests.dockerfile import Instruction, is_ignored, read_dockerfile
from tests.manifests import containers, pods

ROOT = Path(__file__).parents[2]
DOCKERFILE = read_dockerfile(ROOT / "Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
ROLES_BY_NAME = {role.name: role for role in ROLES}


def hadolint(text: str) -> str:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run([str(program), "--no-color", "-"], input=text, capture_output=True, text=True)
    return done.stdout


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    assert hadolint((ROOT / "Dockerfile").read_text()) == ""
    assert "DL3008" in hadolint("FROM debian:12\nRUN apt-get install -y redis-server\n")


def test_an_image_runs_as_nobody_in_particular_and_says_how_it_is() -> None:
    last = DOCKERFILE[max(number for number, each in enumerate(DOCKERFILE) if each.word == "FROM") :]
    words = {each.word: each.value for each in last}
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", words["USER"])
    assert "surreal health" in words["HEALTHCHECK"]
    assert words["ENTRYPOINT"] == '["surreal"]'
    assert "VOLUME" not in words  # each container would leave an anonymous volume behind
    # Nothing is set up after that as another user, and pods ask for the same one.
    assert [each.word for each in last].index("USER") > max(
        number for number, each in enumerate(last) if each.word in ("RUN", "COPY")
    )
    assert words["LABEL"].count("org.opencontainers.image.") == 4
    assert f"VERSION={__version__}" in [each.value for each in last if each.word == "ARG"]
    users = {template["spec"]["securityContext"]["runAsUser"] for _, template in pods(read_base())}
    assert {f"{user}:{user}" for user in users} == {words["USER"]}
    assert {each["image"] for _, each in containers(read_base())} == {f"surreal:{__version__}"}


def test_what_an_image_is_made_of_is_pinned_and_given_to_the_builder() -> None:
    commands = [line for each in DOCKERFILE if each.word == "RUN" for line in each.value.split("&&")]
    installs = [line for line in commands if re.search(r"(pip|apt-get).* install ", line)]
    assert len(installs) == 4
    for line in installs:
        assert any(word in line for word in ("-c constraints.txt", "--no-deps", "redis-server=5:7")), line
    # An edit of the source leaves the layer with the dependencies as it is.
    before, _, after = (ROOT / "Dockerfile").read_text().partition("COPY surreal surreal")
    assert '".[$EXTRAS]"' in before and "--no-deps" in after
    sources = [word for each in copies() for word in shlex.split(each.value)[:-1]]
    assert sources and [name for name in sources if is_ignored(ROOT / ".dockerignore", name)] == []
    for secret in ("secrets/agent", ".git/config", ".venv/bin/python", "runs/x", "tests/conftest.py", ".env"):
        assert is_ignored(ROOT / ".dockerignore", secret), secret
    assert is_ignored(ROOT / ".dockerignore", "surreal/cli/__pycache__/x.pyc")
    (arguments,) = [each.value for each in DOCKERFILE if each.word == "ARG" and each.value.startswith("EXTRAS=")]
    extras = arguments.partition("=")[2].split(",")
    known = (ROOT / "setup.py").read_text()
    assert all(f'"{extra}": [' in known for extra in extras)


def copies() -> list[Instruction]:
    return [each for each in DOCKERFILE if each.word == "COPY" and not each.value.startswith("--from")]


def expanded(text: str) -> str:
    """With the defaults of its variables."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_every_service_is_bounded_and_shows_no_secret(name: str) -> None:
    service = COMPOSE["services"][name]
    limits = service["deploy"]["resources"]["limits"]
    assert limits["cpus"] and limits["memory"] and service["pids_limit"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["init"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["image"] == f"surreal:{__version__}"
    shown = [*service["command"], *map(str, service.get("environment", {}).values())]
    assert not [word for word in shown if re.search(r"://[^/]*@|password=", word)]
    assert {*service.get("secrets", ())} <= {*COMPOSE["secrets"]}
    files = [value for key, value in service.get("environment", {}).items() if key.endswith("_FILE")]
    # Of the users of Redis, the one that it comes as; a server must know all of them.
    given = [user for user in service.get("secrets", ()) if user in REDIS_USERS]
    assert given == sorted(REDIS_USERS) if name == "redis" else [Path(path).name for path in files] == given
    assert name == "tensorboard" or "run" in service["networks"]
    assert ("ports" in service) is (name in ("rlx-server", "tensorboard"))


def test_the_commands_of_services_are_ones_that_roles_take() -> None:
    seen = set()
    for name, service in COMPOSE["services"].items():
        role, *arguments = map(expanded, service["command"])
        if role not in ROLES_BY_NAME:
            assert name in ("redis", "tensorboard")
            continue
        seen.add(role)
        own = [word for word in arguments if not word.startswith(("--host", "--port"))]
        parsed = parse(ROLES_BY_NAME[role], own)
        assert parsed.run == "demo" and parsed.stay and parsed.resume
        drain_s = ROLES_BY_NAME[role].drain_timeout_s
        assert float(service["stop_grace_period"].removesuffix("s")) >= drain_s + 10
        load_config("cartpole-dqn", parsed.overrides)
        (app,) = [each for each in service["volumes"] if isinstance(each, dict)]
        assert (app["type"], app["target"]) == ("bind", parsed.config)
        assert (ROOT / expanded(app["source"])).is_file()
        assert service["depends_on"] == ["redis"]  # which is stopped last
    assert seen == {"learner", "agent", "eval", "rlx-server"}
    assert COMPOSE["networks"]["run"] == {"internal": True}


def test_passwords_are_made_once_for_all_who_need_one(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"

    def make() -> dict[str, str]:
        subprocess.run(["sh", str(ROOT / "scripts" / "make_passwords.sh"), str(folder)], check=True)
        return {path.name: path.read_text() for path in folder.iterdir()}

    first = make()
    assert (
        set(first) == {Path(each["file"]).name for each in COMPOSE["secrets"].values()} == {*REDIS_USERS, "rlx-token"}
    )
    assert len({*first.values()}) == len(first) and all(re.fullmatch("[0-9a-f]{48}", each) for each in first.values())
    assert os.stat(folder).st_mode & 0o077 == 0
    (folder / "agent").write_text("mine")
    assert make() == {**first, "agent": "mine"}
