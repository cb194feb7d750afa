"""Values of calls as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.errors import CodecError
from surreal.distributed.connection import call_values as message
from surreal.distributed.connection.call_values import decode, encode


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -2.5,
        "text",
        [1, [2.0, None], {}],
        {"a": {"b": [1]}},
        {"__array__": "0"},
        {"__mapping__": {"__tensor__": 1}},
    ],
)
def test_plain_values_come_back(value: Any) -> None:
    assert decode(encode(value)) == value


def test_arrays_and_tensors_come_back_as_what_they_were() -> None:
    values = {
        "array": np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2],
        "scalar": np.float32(1.5),
        "tensors": (torch.tensor(2.0), torch.arange(4, dtype=torch.bfloat16), torch.zeros(0, 3)),
    }
    found = decode(encode(values))
    np.testing.assert_array_equal(found["array"], values["array"])
    assert found["array"].dtype == np.int32
    assert found["scalar"] == 1.5
    for mine, theirs in zip(values["tensors"], found["tensors"], strict=True):
        torch.testing.assert_close(theirs, mine, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, b"bytes", np.array([object()])])
def test_what_is_not_transported_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        encode(value)


def test_too_large_a_value_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(np.zeros(1000))
    monkeypatch.setattr(message, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="may carry 1000"):
        encode(np.zeros(1000))
    with pytest.raises(CodecError, match="may carry 1000"):
        decode(data)


def test_bytes_that_are_no_call_are_refused() -> None:
    whole = encode([1, np.arange(8)])
    for data in (b"", b"\0" * 8, whole[:-1], whole[: len(whole) // 2], whole.replace(b"surreal-call", b"another-call")):
        with pytest.raises(CodecError):
            decode(data)
