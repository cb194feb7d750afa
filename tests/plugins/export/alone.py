"""Another program, which has exported policies and no Surreal: `python alone.py POLICY EXAMPLES POLICY EXAMPLES ...`.

EXAMPLES are arrays [steps, rows, ...] of inputs, `in:NAME`, and of the outputs that the policy should give, `out:NAME`.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def open_onnx(path: str) -> Callable[[Arrays], Arrays]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def open_torchscript(path: str) -> Callable[[Arrays], Arrays]:
    import torch

    policy = torch.jit.load(path)

    def run(inputs: Arrays) -> Arrays:
        outputs = policy({name: torch.from_numpy(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run


def compare(policy: Callable[[Arrays], Arrays], examples: Arrays) -> int:
    given = {key.removeprefix("in:"): array for key, array in examples.items() if key.startswith("in:")}
    wanted = {key.removeprefix("out:"): array for key, array in examples.items() if key.startswith("out:")}
    state, count = given.pop("state", None), 0
    for step in range(len(next(iter(wanted.values())))):
        inputs = {name: array[step] for name, array in given.items()}
        outputs = policy(inputs if state is None else {**inputs, "state": state})
        state = outputs.get("next_state")
        for name, arrays in wanted.items():
            found, right = outputs[name], arrays[step]
            assert found.dtype == right.dtype and found.shape == right.shape, (name, found.dtype, found.shape)
            if right.dtype.kind == "f":
                np.testing.assert_allclose(found, right, atol=1e-4)
            else:  # of a thousand choices, one may be as good as another
                assert (found != right).reshape(len(right), -1).any(1).sum() <= len(right) // 1000, name
        count += len(right)
    assert all(len(np.unique(arrays)) > 1 for arrays in wanted.values()), "the examples show one action only"
    return count


if __name__ == "__main__":
    for path, examples in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        opened = open_onnx(path) if path.endswith(".onnx") else open_torchscript(path)
        sys.stdout.write(f"{compare(opened, dict(np.load(examples)))} {path}\n")
    assert not [name for name in sys.modules if name.partition(".")[0] == "surreal"]
