"""How gradients become steps, against their formulas."""

from __future__ import annotations

import pytest
import torch

from surreal.learner.parameter_server.server import History, Mean, compensate


def test_compensation_is_its_formula() -> None:
    torch.manual_seed(0)
    gradient, now, then = torch.randn(3, 5), torch.randn(3, 5), torch.randn(3, 5)
    corrected = compensate(gradient, now, then, 0.05)
    for i in range(3):
        for j in range(5):
            g, moved = float(gradient[i, j]), float(now[i, j] - then[i, j])
            assert float(corrected[i, j]) == pytest.approx(g + 0.05 * g * g * moved, rel=1e-5)
    assert torch.equal(compensate(gradient, now, then, 0.0), gradient)
    assert torch.equal(compensate(gradient, now, now, 0.05), gradient)


def test_compensation_is_the_gradient_at_the_new_place_where_the_hessian_is_the_square() -> None:
    # f(w) = -log(w): its gradient is -1/w, and its second derivative 1/w^2, the square of that.
    then, now = torch.tensor([2.0]), torch.tensor([2.01])
    assert float(compensate(-1 / then, now, then, 1.0)) == pytest.approx(float(-1 / now), abs=2e-5)


def test_mean_comes_after_so_many_gradients_and_leaves_them_as_they_are() -> None:
    mean = Mean(3)
    gradients = [{"a": torch.full((2,), float(i)), **({"b": torch.ones(1)} if i == 1 else {})} for i in (1, 2, 6)]
    assert mean.add(gradients[0]) is None
    assert mean.add(gradients[1]) is None
    found = mean.add(gradients[2])
    assert found is not None
    assert torch.equal(found["a"], torch.full((2,), 3.0))
    assert torch.equal(found["b"], torch.full((1,), 1 / 3))  # zero where the others lack it
    assert torch.equal(gradients[0]["a"], torch.ones(2))
    assert mean.add(gradients[0]) is None
    mean.clear()
    assert [mean.add(gradients[1]) is None for _ in range(3)] == [True, True, False]


def test_history_is_by_updates_and_gives_the_oldest_for_what_is_older() -> None:
    history = History(20)
    assert history.at(1) is None
    for version, update in ((5, 100), (6, 110), (9, 121)):
        history.add(version, update, {"w": torch.tensor([float(version)])})
    found = {version: float((history.at(version) or {})["w"]) for version in (1, 6, 7, 8, 9, 30)}
    assert found == {1: 6, 6: 6, 7: 6, 8: 6, 9: 9, 30: 9}  # version 5 is 21 updates back
    history.forget(500)
    assert float((history.at(1) or {})["w"]) == 9
    history.clear()
    assert history.at(9) is None


@pytest.mark.parametrize("wrong", [lambda: Mean(0), lambda: History(0)])
def test_impossible_numbers_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        wrong()  # type: ignore[operator]
