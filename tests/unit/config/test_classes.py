"""Classes by import path, and their arguments."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import add_python_path, check_args, import_class

HERE = "user_classes_for_test"
USER_MODULE = """
from abc import ABC, abstractmethod
class Good(dict): pass
class Unfinished(dict, ABC):
    @abstractmethod
    def learn(self): ...
    @abstractmethod
    def act(self): ...
number = 3
"""


class Example:
    def __init__(self, first: object, hiddens: tuple[int, ...], activation: str = "relu", *, seed: int = 0) -> None:
        pass


class Anything:
    def __init__(self, first: object, **options: object) -> None:
        pass


@pytest.fixture
def user_module(tmp_path: Path) -> Iterator[None]:
    (tmp_path / f"{HERE}.py").write_text(USER_MODULE, encoding="utf-8")
    (tmp_path / f"{HERE}_broken.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    before = list(sys.path)
    add_python_path([str(tmp_path), str(tmp_path)])
    assert sys.path == [*before, str(tmp_path)]
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith(HERE)]:
        del sys.modules[name]


@pytest.mark.usefixtures("user_module")
def test_class_of_a_users_module_is_found() -> None:
    assert import_class(f"{HERE}.Good", dict).__name__ == "Good"


@pytest.mark.usefixtures("user_module")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Good", "must be the import path of a class"),
        (f"{HERE}.Goood", f"has no Goood (app.yaml line 3); did you mean {HERE}.Good?"),
        (f"{HERE}.number", "which is not a builtins.dict"),
        ("pathlib.Path", "which is not a builtins.dict"),
        (f"{HERE}_missing.Good", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}_broken.Good", "No module named 'nothing_of_this_name'"),
        (f"{HERE}.Unfinished", "which does not override act, learn"),
        ("..Good", "cannot be imported"),
    ],
)
def test_class_that_cannot_serve_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_class(path, dict, key="learner.class", source="app.yaml line 3")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"learner.class is {path!r}")
    assert "(app.yaml line 3)" in str(caught.value)


def test_arguments_come_back_by_the_constructors_names() -> None:
    args = check_args(
        Example,
        {"hidden_sizes": [64], "seed": 3},
        "model.args",
        given=["first"],
        renamed={"hidden_sizes": "hiddens", "other": "nothing"},
    )
    assert args == {"hiddens": [64], "seed": 3}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"hiddens": [1], "activatoin": "relu"}, "did you mean model.args.activation?"),
        ({"hiddens": [1], "zzzz": 1}, "it takes hidden_sizes, hiddens, activation, seed"),
        ({"hidden_sise": [1]}, "did you mean model.args.hidden_sizes?"),
        ({"first": 1}, "model.args.first is set by other settings; leave it out"),
        ({}, "model.args.hiddens is missing; Example needs it"),
        ({"hiddens": [1], "hidden_sizes": [1]}, "is given twice"),
        ({"hiddens": [1], "seed": "one"}, "model.args.seed is 'one'; Example needs a whole number"),
        ({"hiddens": 64}, "model.args.hiddens is 64; Example needs a list"),
    ],
)
def test_wrong_arguments_are_refused(args: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_args(
            Example,
            args,
            "model.args",
            given=["first"],
            renamed={"hidden_sizes": "hiddens"},
            source_of=lambda key: "app.yaml line 3",
        )
    assert message in str(caught.value)
    assert "(app.yaml line 3)" in str(caught.value)


def test_class_that_takes_anything_gets_anything() -> None:
    assert check_args(Anything, {"x": 1}, "model.args", given=["first"]) == {"x": 1}


class HandingOn(Example):
    def __init__(self, first: object, *, depth: int = 1, **options: object) -> None:
        super().__init__(first, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"sede": 1}, "model.args.sede is not an argument of HandingOn; did you mean model.args.seed?"),
        ({"dept": 1}, "did you mean model.args.depth?"),
        ({"seed": "x"}, "model.args.seed is 'x'; HandingOn needs a whole number"),
    ],
)
def test_what_is_handed_on_is_checked_against_the_base(args: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_args(HandingOn, args, "model.args", given=["first"])
    assert message in str(caught.value)


def test_a_class_may_give_its_base_what_that_needs() -> None:
    assert check_args(HandingOn, {"depth": 2, "seed": 3}, "model.args", given=["first"]) == {"depth": 2, "seed": 3}


def test_abstract_base_can_be_asked_for() -> None:
    class Base(ABC):
        @abstractmethod
        def act(self) -> None: ...

    with pytest.raises(ConfigError, match="is not a"):
        import_class("pathlib.Path", Base)
