from __future__ import annotations

import itertools
import random
import ssl

import pytest
from redis import exceptions

from surreal.distributed.connection.retry import delays_s, is_out_of_memory, is_refused, is_transient


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


@pytest.mark.parametrize(
    "error", [exceptions.ResponseError("ERR syntax"), exceptions.OutOfMemoryError("OOM"), KeyError(1)]
)
def test_other_errors_are_not_tried_again(error: Exception) -> None:
    assert not is_transient(error)


def test_out_of_memory_is_known_from_any_server_version() -> None:
    assert is_out_of_memory(exceptions.OutOfMemoryError("command not allowed"))
    in_script = "Error running script (call to f_7): @user_script:1: -OOM not allowed when used memory > 'maxmemory'"
    assert is_out_of_memory(exceptions.ResponseError(in_script))
    assert not is_out_of_memory(exceptions.ResponseError("ERR no room"))


def test_delays_grow_to_a_bound_and_are_jittered() -> None:
    delays = list(itertools.islice(delays_s(random.Random(1)), 12))
    bounds = [min(2.0, 0.05 * 2**i) for i in range(12)]
    assert all(bound / 2 <= delay <= bound for delay, bound in zip(delays, bounds, strict=True))
    assert delays != list(itertools.islice(delays_s(random.Random(2)), 12))
