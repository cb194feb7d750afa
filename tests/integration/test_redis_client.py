"""`RedisClient` against real servers: scripts, restarts, passwords, ACLs, TLS."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError

from surreal.base.errors import ContractError, RedisUnavailableError
from surreal.distributed import RedisClient
from surreal.distributed.connection.contract import CONTRACT_TTL_S, register_model_contract
from surreal.distributed.connection.wire import Script
from surreal.plugins.clusters.redis.server import answers


def hold(client: RedisClient, token: str, lease_ms: int) -> list[Any]:
    keys = client.policy_keys()
    reply: list[Any] = client.run_script("hold", [keys.params, keys.lease], [token, lease_ms, 0])
    return reply


def test_server_is_asked_for_version_and_time(client: RedisClient) -> None:
    assert client.ping()
    assert client.check_server() >= (6, 2)
    assert abs(client.server_time_s() - time.time()) < 60


def test_old_server_is_refused(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.redis, "info", lambda section: {"redis_version": "5.0.7"})
    with pytest.raises(RedisUnavailableError, match=r"version 5\.0\.7; Surreal needs 6\.2 or newer"):
        client.check_server()


def test_script_is_loaded_again_when_the_server_forgot_it(start_redis: Callable[..., Any], redis_binary: str) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as client:
        assert hold(client, "me", 1000)[0] == b"empty"
        client.redis.script_flush()
        assert hold(client, "me", 1000)[0] == b"empty"


def test_client_goes_on_after_the_server_was_killed(start_redis: Callable[..., Any]) -> None:
    server = start_redis(appendonly=True)
    with RedisClient(server.address) as client:
        client.redis.set("kept", b"1")
        hold(client, "me", 60_000)
        server.kill()
        thread, replies = retry_in_a_thread(client, lambda: hold(client, "other", 1000))
        server.start()
        thread.join()
        assert replies[0][0] == b"held"
        assert client.redis.get("kept") == b"1"


def retry_in_a_thread(
    client: RedisClient, operation: Callable[[], Any], before: Callable[[], object] = lambda: None
) -> tuple[threading.Thread, list[Any]]:
    """Call an operation through `retry`, do `before`, and return once the operation has failed for the first time."""
    replies: list[Any] = []
    thread = threading.Thread(
        target=lambda: replies.append(client.retry(operation, what="hold", timeout_s=60)), daemon=True
    )
    thread.start()
    before()
    deadline = time.monotonic() + 60
    while not client.is_away:
        assert thread.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return thread, replies


def test_missing_replicas_are_waited_for(start_redis: Callable[..., Any], redis_binary: str) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as client:
        hold(client, "me", 60_000)
        client.redis.config_set("min-replicas-to-write", 1)
        thread, replies = retry_in_a_thread(client, lambda: hold(client, "me", 60_000))
        client.redis.config_set("min-replicas-to-write", 0)
        thread.join()
        assert replies[0][0] == b"empty"


def test_a_disk_that_takes_no_snapshot_is_waited_for(start_redis: Callable[..., Any]) -> None:
    server = start_redis(options=["--save", "3600 1000000"])
    folder = server.socket_path.parent / "dump.rdb"
    with RedisClient(server.address) as client:
        client.redis.set("key", b"1")
        folder.mkdir()  # the snapshot cannot be renamed to it
        client.redis.bgsave()
        deadline = time.monotonic() + 60
        while client.redis.info("persistence")["rdb_last_bgsave_status"] == "ok":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(ResponseError, match="MISCONF"):
            client.redis.set("key", b"2")
        assert answers(server.address)
        thread, replies = retry_in_a_thread(client, lambda: hold(client, "me", 60_000))
        folder.rmdir()
        client.redis.bgsave()
        thread.join()
        assert replies[0][0] == b"empty"


def test_a_connection_to_a_demoted_server_is_left(start_redis: Callable[..., Any], redis_binary: str) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as client:
        before = client.redis.client_id()
        client.redis.replicaof("127.0.0.1", 1)
        assert client.redis.client_id() == before
        with pytest.raises(ResponseError, match=r"READONLY|read only"):
            hold(client, "me", 60_000)
        assert client.redis.client_id() != before
        thread, replies = retry_in_a_thread(client, lambda: hold(client, "me", 60_000))
        client.redis.replicaof("NO", "ONE")
        thread.join()
        assert replies[0][0] == b"empty"


def test_a_blocking_read_outlasts_the_demotion_of_its_server(
    start_redis: Callable[..., Any], redis_binary: str
) -> None:
    server = start_redis(binary=redis_binary)
    with RedisClient(server.address) as client, server.client() as other:
        thread, replies = retry_in_a_thread(
            client, lambda: client.redis.xread({"stream": "0"}, block=10_000), before=lambda: demote(other)
        )
        other.replicaof("NO", "ONE")
        other.xadd("stream", {"a": "1"})
        thread.join()
        assert replies[0][0][0] == b"stream"


def demote(redis: Any) -> None:
    """Make the server a replica as soon as a client is blocked."""
    deadline = time.monotonic() + 60
    while not redis.info("clients")["blocked_clients"]:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    redis.replicaof("127.0.0.1", 1)


def test_a_process_holds_as_many_connections_as_it_needs(client: RedisClient) -> None:
    pool = client.redis.connection_pool
    held = [pool.get_connection() for _ in range(128)]
    assert client.ping()
    for connection in held:
        pool.release(connection)


def test_full_server_raises_the_same_error_from_scripts_of_every_version(
    start_redis: Callable[..., Any], redis_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"redis.call('SET', KEYS[1], ARGV[1])"
    script = Script(text, hashlib.sha1(text).hexdigest())
    monkeypatch.setattr("surreal.distributed.connection.client.load_script", lambda name: script)
    server = start_redis(binary=redis_binary, maxmemory="3mb")
    with RedisClient(server.address) as client:
        with contextlib.suppress(OutOfMemoryError):
            for i in range(100):
                client.redis.set(f"fill{i}", bytes(100_000))
        with pytest.raises(OutOfMemoryError):
            client.run_script("any", ["key"], [bytes(200_000)])


def test_delete_run_removes_its_keys_and_no_others(client: RedisClient) -> None:
    other = RedisClient(client_address(client), run=f"{client.run}-2")
    for each in (client, other):
        names = [each.run_keys.config, each.policy_keys().part("abc", 0), each.policy_keys("x").params]
        names += [each.shard_keys(shard, 2).block(str(i)) for shard in range(2) for i in range(400)]
        for name in names:
            each.redis.set(name, b"")
    assert client.delete_run() == 803
    assert client.delete_run() == 0
    assert other.delete_run() == 803
    other.close()


def client_address(client: RedisClient) -> str:
    return f"unix://{client.redis.connection_pool.connection_kwargs['path']}"


def test_password_and_acl_user(start_redis: Callable[..., Any]) -> None:
    server = start_redis(port=0, password="tops3cret")
    with RedisClient(f"redis://:tops3cret@{server.address}") as client:
        assert client.ping()
        client.redis.acl_setuser("reader", enabled=True, passwords=["+pw"], commands=["+get", "+info"], keys=["*"])
    with RedisClient(server.address, username="reader", password="pw") as client:
        client.check_server()
        with pytest.raises(NoPermissionError):
            client.redis.set("a", b"1")
        with pytest.raises(RedisUnavailableError, match="refused to store it"):
            client.retry(lambda: client.redis.set("a", b"1"), what="store it")
    for options in ({}, {"password": "wrong"}):
        with RedisClient(server.address, **options) as client:
            assert not client.ping()
            with pytest.raises(RedisUnavailableError, match="refused to say its version") as caught:
                client.check_server()
            assert "tops3cret" not in str(caught.value)


def test_contract_of_the_first_is_compared_and_expires(client: RedisClient) -> None:
    key = client.policy_keys().contract
    contract = {"w": {"shape": [1, 2], "dtype": "float32"}, "b": {"shape": [2], "dtype": "float32"}}
    register_model_contract(client, key, contract)
    client.redis.pexpire(key, 5_000)
    register_model_contract(client, key, dict(reversed(contract.items())))
    assert 5_000 < client.redis.pttl(key) <= 1000 * CONTRACT_TTL_S
    with pytest.raises(ContractError, match=r"w is \[1, 3\] here and \[1, 2\] in run") as caught:
        register_model_contract(client, key, contract | {"w": {"shape": [1, 3], "dtype": "float32"}})
    assert caught.value.diff == ("w.shape: [1, 2] -> [1, 3]",)
    client.redis.set(key, b"\xff{")
    with pytest.raises(ContractError, match="not JSON"):
        register_model_contract(client, key, {})


def test_model_contract_of_hostile_json_is_an_error_not_a_crash(client: RedisClient) -> None:
    client.redis.set(client.policy_keys().contract, b"[1]")
    with pytest.raises(ContractError, match="missing in run"):
        register_model_contract(client, client.policy_keys().contract, {"w": {"shape": [1], "dtype": "float32"}})


@pytest.fixture
def tls_server(tmp_path: Path, free_port: int) -> Iterator[tuple[int, Path]]:
    """A redis-server that speaks TLS only, with a certificate signed by itself: its port and the certificate."""
    server, openssl = shutil.which("redis-server"), shutil.which("openssl")
    if server is None or openssl is None:
        pytest.skip("needs redis-server and openssl on PATH")
    key, certificate, log = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "redis.log"
    make = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-days", "2"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    command = [server, "--port", "0", "--tls-port", str(free_port), "--tls-ca-cert-file", str(certificate)]
    command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-auth-clients", "no"]
    command += ["--requirepass", "tops3cret", "--dir", str(tmp_path), "--save", "", "--logfile", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not accepts(free_port):
            if process.poll() is not None:
                pytest.skip("this redis-server was built without TLS")
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield free_port, certificate
    finally:
        process.terminate()
        process.wait()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_tls(tls_server: tuple[int, Path]) -> None:
    port, certificate = tls_server
    with RedisClient(f"rediss://:tops3cret@localhost:{port}?ssl_ca_certs={certificate}") as client:
        assert client.check_server() >= (6, 2)
        payload = bytes(1_000_000)
        client.redis.set("large", payload)
        assert client.redis.get("large") == payload
        pubsub = client.redis.pubsub()
        pubsub.subscribe("channel")
        assert pubsub.get_message(timeout=60)["type"] == "subscribe"
        pubsub.close()


def test_tls_certificate_that_is_not_trusted_is_refused_at_once(tls_server: tuple[int, Path]) -> None:
    port, _ = tls_server
    with (
        RedisClient(f"rediss://:tops3cret@localhost:{port}") as client,
        pytest.raises(RedisUnavailableError, match=r"refused to say its version.*certificate") as caught,
    ):
        client.check_server(timeout_s=60)
    assert "tops3cret" not in str(caught.value)


def test_tls_to_a_server_without_it_is_one_sentence(start_redis: Callable[..., Any]) -> None:
    server = start_redis(port=0)
    with RedisClient(f"rediss://{server.address}", timeout_s=0.5) as client, pytest.raises(RedisUnavailableError):
        client.check_server(timeout_s=1)


def test_missing_certificate_file_is_one_sentence(tls_server: tuple[int, Path]) -> None:
    port, _ = tls_server
    with (
        RedisClient(f"rediss://localhost:{port}?ssl_ca_certs=/nowhere/ca.pem") as client,
        pytest.raises(RedisUnavailableError),
    ):
        client.check_server(timeout_s=1)


def test_client_is_shared_by_threads(client: RedisClient) -> None:
    errors: list[Exception] = []

    def work(name: str) -> None:
        try:
            for i in range(50):
                client.redis.set(f"{client.run_keys.config}:{name}", str(i))
                assert client.redis.get(f"{client.run_keys.config}:{name}") == str(i).encode()
        except (AssertionError, redis.RedisError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
