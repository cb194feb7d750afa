from __future__ import annotations

from typing import Any

import pytest

from surreal.distributed.connection.contract import describe_difference, describe_model_difference

MODEL = {
    "fc1.weight": {"shape": [128, 4], "dtype": "float32"},
    "fc1.bias": {"shape": [128], "dtype": "float32"},
}


@pytest.mark.parametrize(
    ("theirs", "ours", "difference"),
    [
        ({"a": {"b": 1}, "c": [1, 2]}, {"c": [1, 2], "a": {"b": 1}}, ()),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ("a.b: 1 -> 2",)),
        ({"a": 1}, {}, ("a: 1 -> (absent)",)),
        ({}, {"a": {"b": [1]}}, ('a: (absent) -> {"b": [1]}',)),
        ([{"b": 1}, {"b": 2}], [{"b": 1}, {"b": 3}, {"b": 4}], ("[1].b: 2 -> 3", '[2]: (absent) -> {"b": 4}')),
        ({"a": 1}, {"a": True}, ("a: 1 -> true",)),
        ({"a": "1"}, {"a": 1}, ('a: "1" -> 1',)),
        ([1], {"a": 1}, ('(all): [1] -> {"a": 1}',)),
        (None, {"a": None}, ('(all): null -> {"a": null}',)),
    ],
)
def test_difference_of_nested_json(theirs: Any, ours: Any, difference: tuple[str, ...]) -> None:
    assert describe_difference(theirs, ours) == difference


def test_model_difference_names_the_first_parameter() -> None:
    ours = {**MODEL, "fc1.weight": {"shape": [64, 4], "dtype": "float32"}}
    assert describe_model_difference(MODEL, ours, "R") == "fc1.weight is [64, 4] here and [128, 4] in run R"


def test_model_difference_counts_the_others_and_shows_dtypes_where_shapes_agree() -> None:
    ours = {"fc1.weight": {"shape": [128, 4], "dtype": "float16"}}
    sentence = describe_model_difference(MODEL, ours, "R")
    assert sentence == "fc1.weight is [128, 4] float16 here and [128, 4] float32 in run R (1 more differ)"


def test_model_difference_of_names() -> None:
    assert describe_model_difference({}, MODEL, "R").startswith("fc1.weight is [128, 4] here and missing in run R")
    assert describe_model_difference(MODEL, {}, "R").startswith("fc1.weight is missing here and [128, 4] in run R")
