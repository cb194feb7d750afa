from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest
from redis import exceptions

from surreal.base.errors import RedisUnavailableError, StoppedError
from surreal.distributed import RedisClient


class Flaky:
    """Fails a number of times with one error, then answers."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.left = failures
        self.error = error or exceptions.ConnectionError("away")
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "answer"


@pytest.fixture
def client() -> RedisClient:
    return RedisClient("redis://user:tops3cret@127.0.0.1:1", run="r")


def test_importing_the_client_loads_neither_torch_nor_arrow() -> None:
    code = (
        "import sys; from surreal.distributed import RedisClient; RedisClient('127.0.0.1:1');"
        "sys.exit('torch' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_unknown_name_of_the_package_is_an_attribute_error() -> None:
    import surreal.distributed

    assert "TorchListener" in dir(surreal.distributed)
    with pytest.raises(AttributeError, match="Nothing"):
        _ = surreal.distributed.Nothing


def test_constructor_does_not_connect_and_the_repr_hides_the_password(client: RedisClient) -> None:
    assert client.redis.connection_pool.connection_kwargs["password"] == "tops3cret"
    assert "tops3cret" not in repr(client) + client.address + repr(client.redis)


def test_redis_py_retries_are_off(client: RedisClient) -> None:
    connection = client.redis.connection_pool.make_connection()
    assert connection.retry.get_retries() == 0
    assert client.redis.get_encoder().decode_responses is False


@pytest.mark.parametrize("run", ["", "a{b", "a b", "a*", "a:b", "-a", "x" * 129])
def test_run_id_that_would_break_keys_is_refused(run: str) -> None:
    with pytest.raises(ValueError, match="run id"):
        RedisClient(run=run)


def test_bad_arguments_are_refused(client: RedisClient) -> None:
    with pytest.raises(ValueError, match="timeout_s is 0"):
        RedisClient(timeout_s=0)
    with pytest.raises(ValueError, match="option that is not known"):
        RedisClient("redis://host?colour=red")
    with pytest.raises(ValueError, match="policy"):
        client.policy_keys("a}b")
    with pytest.raises(ValueError, match="shard"):
        client.shard_keys(-1)


def test_names_are_those_of_the_run(client: RedisClient) -> None:
    assert client.shard_keys(0).stream == "surreal:{r:s0}:stream"
    assert client.policy_keys("p").params == "surreal:{r}:policy:p:params"
    assert client.run_keys.log == "surreal:{r}:log"


def test_retry_warns_once_and_tells_the_recovery(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert client.retry(Flaky(3), what="try") == "answer"
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO"]
    assert "tops3cret" not in caplog.text


def test_retry_gives_up_in_time(client: RedisClient) -> None:
    operation = Flaky(1000)
    with pytest.raises(RedisUnavailableError, match=r"redis://user:\*\*\*@127.0.0.1:1 did not answer in time to try"):
        client.retry(operation, what="try", timeout_s=1.0)
    assert 2 <= operation.calls <= 10


def test_retry_stops_with_its_owner_but_tries_once(client: RedisClient) -> None:
    stop = threading.Event()
    stop.set()
    assert client.retry(Flaky(0), what="try", stop=stop) == "answer"
    operation = Flaky(1)
    with pytest.raises(StoppedError):
        client.retry(operation, what="try", stop=stop)
    assert operation.calls == 1


def test_refusal_ends_at_once_with_a_sentence(client: RedisClient) -> None:
    operation = Flaky(1, exceptions.AuthenticationError("invalid username-password pair"))
    with pytest.raises(RedisUnavailableError, match="refused to try: invalid username-password pair"):
        client.retry(operation, what="try")
    assert operation.calls == 1


@pytest.mark.parametrize("error", [exceptions.OutOfMemoryError("full"), exceptions.ResponseError("ERR syntax")])
def test_errors_of_the_caller_are_raised_as_they_are(client: RedisClient, error: Exception) -> None:
    with pytest.raises(type(error)):
        client.retry(Flaky(1, error), what="try")


def test_unreachable_server_is_one_sentence(client: RedisClient) -> None:
    assert not client.ping()
    with pytest.raises(RedisUnavailableError, match="is it running there"):
        client.check_server(timeout_s=0.05)
