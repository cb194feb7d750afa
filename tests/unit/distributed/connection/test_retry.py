from __future__ import annotations

import itertools
import random
import socket
import ssl
import threading

import pytest
from redis import Redis, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from surreal.base.errors import RedisUnavailableError
from surreal.base.system.logs import WAITS
from surreal.distributed.connection.retry import RetryPolicy, delays_s, is_out_of_memory, is_refused, is_transient


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectionError("refused"),
        exceptions.TimeoutError("late"),
        exceptions.BusyLoadingError("loading"),
        exceptions.ReadOnlyError("replica"),
        exceptions.ClusterDownError("down"),
        exceptions.MasterDownError("down"),
        exceptions.ResponseError("BUSY Redis is busy running a script."),
        exceptions.ResponseError("ERR Error running script (call to f_1): @user_script: 3: -READONLY You can't write"),
        exceptions.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        exceptions.ResponseError("NOREPLICAS Not enough good replicas to write. script: 8a, on @user_script:1."),
        exceptions.ResponseError(
            "Error running script (call to f_1): @user_script:1: @user_script: 1: -NOREPLICAS Not"
        ),
        exceptions.ResponseError("Command # 1 (SET a 1) of pipeline caused error: MISCONF Redis is configured to save"),
    ],
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert is_transient(error)
    assert not is_refused(error)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.AuthenticationError("wrong password"),
        exceptions.AuthorizationError("no"),
        exceptions.NoPermissionError("no permission"),
    ],
)
def test_a_refusal_is_not_tried_again(error: Exception) -> None:
    assert is_refused(error)
    assert not is_transient(error)


def test_a_certificate_that_fails_is_a_refusal() -> None:
    error = exceptions.ConnectionError("Error 1 connecting")
    error.__context__ = ssl.SSLCertVerificationError(1, "self-signed certificate")
    assert is_refused(error)
    assert not is_transient(error)


@pytest.mark.parametrize(("answer", "is_refusal"), [(b"", False), (b"-ERR not a TLS server\r\n", True)])
def test_a_server_that_hangs_up_in_a_handshake_is_tried_again(answer: bytes, is_refusal: bool) -> None:
    """As one that ends does, for a moment; one without TLS never will have it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(exceptions.ConnectionError) as caught:
            Redis.from_url(f"rediss://127.0.0.1:{listener.getsockname()[1]}", retry=Retry(NoBackoff(), 0)).ping()
        thread.join()
    assert (is_refused(caught.value), is_transient(caught.value)) == (is_refusal, not is_refusal)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ResponseError("ERR syntax"),
        exceptions.ResponseError("BUSYKEY Target key name already exists."),
        exceptions.MaxConnectionsError("Too many connections"),
        exceptions.OutOfMemoryError("OOM"),
        KeyError(1),
    ],
)
def test_other_errors_are_not_tried_again(error: Exception) -> None:
    assert not is_transient(error)


def test_out_of_memory_is_known_from_any_server_version() -> None:
    assert is_out_of_memory(exceptions.OutOfMemoryError("command not allowed"))
    in_script = "Error running script (call to f_7): @user_script:1: -OOM not allowed when used memory > 'maxmemory'"
    assert is_out_of_memory(exceptions.ResponseError(in_script))
    assert not is_out_of_memory(exceptions.ResponseError("ERR no room"))


def test_a_wait_ends_with_its_own_call_when_another_thread_has_seen_the_recovery() -> None:
    policy, is_back, has_failed = RetryPolicy("there"), threading.Event(), threading.Event()

    def ask() -> None:
        if not is_back.is_set():
            has_failed.set()
            raise exceptions.ConnectionError("refused")

    thread = threading.Thread(target=lambda: policy.call(ask, what="ask", stop=None, timeout_s=60))
    thread.start()
    assert has_failed.wait(60)
    policy.call(lambda: None, what="ask", stop=None, timeout_s=60)
    assert not policy.is_away
    is_back.set()
    thread.join()
    assert thread.ident is not None
    assert not WAITS.is_waiting(thread.ident)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (exceptions.ConnectionError("refused"), "did not answer in time to ask: refused; is it running there"),
        (exceptions.ResponseError("MISCONF disk"), "refused to ask for 0 s: MISCONF disk"),
    ],
)
def test_a_wait_that_was_in_vain_says_whether_redis_answered(error: Exception, told: str) -> None:
    def ask() -> None:
        raise error

    with pytest.raises(RedisUnavailableError, match=told):
        RetryPolicy("there").call(ask, what="ask", stop=None, timeout_s=0)


def test_delays_grow_to_a_bound_and_are_jittered() -> None:
    delays = list(itertools.islice(delays_s(random.Random(1)), 12))
    bounds = [min(2.0, 0.05 * 2**i) for i in range(12)]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))
    assert delays != list(itertools.islice(delays_s(random.Random(2)), 12))
