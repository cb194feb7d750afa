"""The module base: lock, version, parameters by name."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from surreal.base.errors import ContractError
from surreal.base.pytorch import Module, to_tensors

DEADLINE_S = 20.0


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_contract_describes_shapes_and_dtypes() -> None:
    assert Net().parameter_contract() == {
        "layer.weight": {"shape": [2, 3], "dtype": "float32"},
        "layer.bias": {"shape": [2], "dtype": "float32"},
    }


def test_tensors_that_are_not_copied_become_the_parameters() -> None:
    net, given = Net(), {"layer.weight": torch.ones(2, 3), "layer.bias": torch.zeros(2)}
    parameters = list(net.parameters())
    net.load_tensors(given, version=7, in_place=False)
    assert [id(parameter) for parameter in net.parameters()] == list(map(id, parameters))
    assert [parameter.data_ptr() for parameter in parameters] == [tensor.data_ptr() for tensor in given.values()]
    assert net.version == 7
    assert net(torch.ones(1, 3)).tolist() == [[3.0, 3.0]]
    with pytest.raises(ContractError):
        net.load_tensors({**given, "layer.bias": torch.zeros(3)}, in_place=False)
    net.load_tensors({name: torch.zeros_like(tensor) for name, tensor in given.items()})
    assert net.layer.weight.requires_grad


def test_loaded_tensors_are_copied_and_the_version_follows() -> None:
    net, given = Net(), {"layer.weight": torch.ones(2, 3), "layer.bias": torch.zeros(2)}
    parameters = list(net.parameters())
    assert net.version == 0
    net.load_tensors(given, version=7)
    given["layer.weight"].fill_(5.0)
    assert net.version == 7
    assert torch.equal(net.layer.weight, torch.ones(2, 3))
    # An optimizer holds the parameters by identity.
    assert all(before is after for before, after in zip(parameters, net.parameters(), strict=True))
    net.load_tensors(given)
    assert net.version == 7


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"layer.weight": torch.ones(2, 4), "layer.bias": torch.ones(2)}, "float32[2, 4] -> float32[2, 3]"),
        ({"layer.weight": torch.ones(2, 3)}, "layer.bias: missing -> float32[2]"),
        (
            {"layer.weight": torch.ones(2, 3), "layer.bias": torch.ones(2), "x": torch.ones(1)},
            "x: float32[1] -> missing",
        ),
        ({"layer.weight": torch.ones(2, 3).double(), "layer.bias": torch.ones(2)}, "float64[2, 3] -> float32[2, 3]"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_and_nothing_changes(given: dict[str, torch.Tensor], line: str) -> None:
    net = Net()
    before = {name: tensor.clone() for name, tensor in net.tensors().items()}
    with pytest.raises(ContractError) as caught:
        net.load_tensors(given, version=3)
    assert line in caught.value.diff[0]
    assert line in str(caught.value)
    assert net.version == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.tensors().items())


def test_loading_in_inference_mode_leaves_parameters_trainable() -> None:
    net = Net()
    with torch.inference_mode():
        net.load_tensors(Net().tensors())
    net(torch.ones(1, 3)).sum().backward()
    assert net.layer.weight.grad is not None


def test_a_copy_has_its_own_lock_and_parameters() -> None:
    net = Net()
    net.load_tensors({"layer.weight": torch.ones(2, 3), "layer.bias": torch.ones(2)}, version=4)
    twin = copy.deepcopy(net)
    assert twin.lock is not net.lock
    assert twin.version == 4
    twin.load_tensors({"layer.weight": torch.zeros(2, 3), "layer.bias": torch.zeros(2)}, version=5)
    assert torch.equal(net.layer.weight, torch.ones(2, 3))
    assert net.version == 4


def test_device_follows_the_module() -> None:
    net = Net()
    assert net.is_on_cpu
    net.to("meta")
    assert net.device == torch.device("meta")
    assert not net.is_on_cpu
    assert "device_probe" not in net.state_dict()


def test_forward_sees_one_version_while_another_thread_swaps() -> None:
    """Parameters of version v are all equal to v; a mixture would show in the output."""
    size = 64
    net = Module()
    net.layer = nn.Linear(size, size)  # type: ignore[assignment]
    stop = threading.Event()

    def swap() -> None:
        version = 0
        while not stop.is_set():
            version += 1
            value = float(version % 1000)
            net.load_tensors(
                {"layer.weight": torch.full((size, size), value), "layer.bias": torch.full((size,), value)}, version
            )

    swapper = threading.Thread(target=swap)
    swapper.start()
    timer = threading.Timer(DEADLINE_S, stop.set)
    timer.start()
    try:
        seen: set[int] = set()
        ones = torch.ones(1, size)
        while len(seen) < 30 and not stop.is_set():
            with net.lock, torch.inference_mode():
                output = net.layer(ones)  # type: ignore[operator]
                version = net.version
            if version:
                seen.add(version)
                assert torch.equal(output, torch.full((1, size), (size + 1.0) * (version % 1000)))
    finally:
        stop.set()
        timer.cancel()
        swapper.join(DEADLINE_S)
    assert len(seen) == 30


def test_to_tensors_keeps_the_nesting_and_shares_memory() -> None:
    array = np.zeros((2, 3), dtype=np.float32)
    nested = to_tensors({"a": array, "b": (np.ones(2, dtype=np.int64), 3)})
    array[0, 0] = 9.0
    assert nested["a"][0, 0] == 9.0
    assert nested["b"][0].dtype is torch.int64
    assert nested["b"][1] == 3


def test_to_tensors_takes_read_only_and_reversed_arrays() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.flags.writeable = False
    assert torch.equal(to_tensors(array), torch.arange(6.0).reshape(2, 3))
    assert torch.equal(to_tensors(array[::-1]), torch.tensor([[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]))
