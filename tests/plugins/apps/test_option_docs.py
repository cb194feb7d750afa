"""The page of options: what a constructor takes, what its bases take, and what it says about them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import surreal.replay
from surreal.plugins.apps.option_docs import options_of
from surreal.replay import Replay, UniformReplay
from surreal.run.build.construct import Recipe
from tests.pages import ROOT, load_script

class_text = load_script("reference_pages").class_text


class Base(ABC):
    """A base.

    Args:
        model: comes from elsewhere.
        device: cpu or
            cuda.
        seed: of its randomness.

    Raises:
        ValueError: never.
    """

    def __init__(self, model: object, *, device: str = "cpu", seed: int | None = None) -> None: ...

    @abstractmethod
    def learn(self) -> None: ...


class Open(Base):
    """Hands the rest on.

    Args:
        sizes: of its layers, a | b.
        seed: another meaning.
        options: as in `Base`, but that `device` is ignored.
    """

    def __init__(self, model: object, *, sizes: Sequence[int] = (64, 64), **options: Any) -> None: ...

    def learn(self) -> None: ...


class Closed(Base):
    def __init__(self, model: object, *, factor: float) -> None: ...

    def learn(self) -> None: ...


class Other(Base):
    """Begins with a seed.

    Args:
        options: see `Base`.
    """

    def __init__(self, model: object, *, seed: int = 7, **options: Any) -> None: ...

    def learn(self) -> None: ...


def test_an_option_declared_anew_is_shown_with_its_own_default_and_the_meaning_of_the_base() -> None:
    recipe = Recipe("learner", Base, 1, frozenset())
    text = "\n".join(class_text(Other, recipe, {Base: "Options of `Base`"}))
    assert "| `seed` | yes | `int` | `7` | of its randomness. |" in text
    assert "Inherited, see [Options of `Base`](#options-of-base): `device`." in text


def test_inherited_options_are_found_with_the_class_that_describes_them() -> None:
    found = {option.name: option for option in options_of(Open)}
    assert list(found) == ["model", "sizes", "device", "seed"]
    assert found["device"].meaning == "cpu or cuda." and found["device"].shown_by is Base
    assert found["seed"].meaning == "another meaning." and found["seed"].shown_by is Open
    assert found["sizes"].annotation == "Sequence[int]" and found["sizes"].default == (64, 64)


def test_options_that_are_not_handed_on_are_not_listed() -> None:
    (model, factor) = options_of(Closed)
    assert (model.name, factor.name) == ("model", "factor")
    assert factor.default is inspect.Parameter.empty and factor.meaning == ""


def test_a_class_is_written_with_its_own_options_first_and_those_of_others_by_name() -> None:
    recipe = Recipe("learner", Base, 1, frozenset({"device", "seed"}), frozenset({"seed"}), {"layers": "sizes"})
    titles: dict[type[object], str] = {Base: "Options of `Base`"}
    text = "\n".join(class_text(Open, recipe, titles))
    assert "Hands the rest on. In Python: `Open(model, ...)`." in text
    assert "| `layers` (`sizes` in Python) | yes | `Sequence[int]` | `[64, 64]` | of its layers, a \\| b. |" in text
    assert "| `seed` | override | `int \\| None` | unset | another meaning. |" in text
    assert "Inherited, see [Options of `Base`](#options-of-base): `device`." in text
    assert "Inherited options are as in `Base`, but that `device` is ignored." in text
    assert "| `device` | no | `str` | `cpu` | cpu or cuda. |" in "\n".join(class_text(Base, recipe, titles))


def test_abstract_classes_are_not_to_be_named() -> None:
    found = list(load_script("reference_pages").public_classes(surreal.replay, Replay))
    assert UniformReplay in found and Replay not in found


def test_every_option_of_ours_says_what_it_means() -> None:
    page = (ROOT / "docs" / "options.md").read_text()
    rows = [line.replace("\\|", "") for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert not [row for row in rows if not row.split("|")[-2].strip()], "these have no entry in an Args section"
