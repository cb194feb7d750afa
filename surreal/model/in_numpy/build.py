"""`Build`: finds the NumPy form of a module, and the memory of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surreal.model.in_numpy.policies import Floats


class NoFormError(Exception):
    """A module has no form in NumPy."""


class Build:
    """Makes the function that computes a module, by its exact class: a subclass may compute otherwise."""

    def __init__(self, forms: Mapping[type, Callable[[Build, Any], Any]]) -> None:
        self._forms = forms
        self._viewed: list[tuple[Mapping[str, Any], str, Tensor]] = []  # where each tensor was found
        self._first: tuple[Tensor, int] | None = None

    def form(self, module: nn.Module) -> Any:
        """Return the function of a module; raises `NoFormError` if it has none, or has hooks for torch."""
        make = self._forms.get(type(module))
        if make is None or module._forward_hooks or module._forward_pre_hooks:
            raise NoFormError
        return make(self, module)

    def view(self, module: nn.Module, name: str) -> Floats:
        """Return the memory of a parameter or buffer; raises `NoFormError` for an unusual dtype or layout."""
        tensors = module._parameters if name in module._parameters else module._buffers
        tensor = tensors[name]
        if tensor is None or tensor.dtype is not torch.float32 or not tensor.is_contiguous():
            raise NoFormError
        self._viewed.append((tensors, name, tensor))
        if tensor.numel():  # an empty one has no address
            self._first = self._first or (tensor, tensor.data_ptr())
        return tensor.detach().numpy()

    def is_current(self) -> bool:
        """Whether the model still has the tensors that `view` found, and they were not moved.

        All tensors of a model are moved at once, so the address of one of them tells; asking torch for each would take
        as long as a layer.
        """
        for tensors, name, tensor in self._viewed:
            if tensors[name] is not tensor:
                return False
        return self._first is None or self._first[0].data_ptr() == self._first[1]
