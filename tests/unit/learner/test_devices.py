"""Devices of learners: which there are, how batches get there, and how numbers come back without a wait.

Where there is no GPU, stand-ins record the order of copies; where there is one, learners on it follow those on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner import DQNLearner, base
from surreal.learner.stepping import devices
from surreal.learner.stepping.devices import (
    BatchMover,
    Readback,
    available_devices,
    batch_to,
    multiplication_of,
    onednn,
    resolve_device,
)
from surreal.learner.stepping.reports import Readings
from surreal.model import QFunction

MakeBatch = Callable[..., Batch]
MakeTrajectories = Callable[..., TrajectoryBatch]
GPUS = [
    pytest.param(name, marks=pytest.mark.skipif(name not in available_devices(), reason=f"torch has no {name} here"))
    for name in ("cuda:0", "mps")
]


def test_devices_by_name() -> None:
    assert resolve_device("cpu").type == "cpu"
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in available_devices():
        assert str(resolve_device(name)) == name
    for name in ("cuda:99", "tpu", "cuda:x"):
        with pytest.raises(ValueError, match=f"device is '{name}', but torch has only cpu"):
            resolve_device(name)


def test_devices_that_torch_can_use_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert available_devices() == ["cpu", "cuda:0", "cuda:1", "mps"]
    assert [str(resolve_device(name)) for name in ("cuda", "cuda:1", "mps")] == ["cuda", "cuda:1", "mps"]


def test_batch_to_keeps_nesting_and_sample_info(make_batch: MakeBatch) -> None:
    nested = {"a": torch.zeros(2), "b": (torch.ones(2),)}
    batch = make_batch(weight=2.0)._replace(obs=nested)
    moved = batch_to(batch, torch.device("cpu"))
    assert torch.equal(moved.obs["b"][0], torch.ones(2))
    assert torch.equal(moved.extras["weight"], batch.extras["weight"])
    assert moved.sample_info is batch.sample_info


def test_copies_have_a_stream_of_their_own_for_which_the_computation_waits(
    make_batch: MakeBatch, make_trajectories: MakeTrajectories, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Computing:
        def wait_stream(self, stream: str) -> None:
            events.append(f"wait for {stream}")

    @contextmanager
    def in_stream(stream: str) -> Iterator[None]:
        events.append(f"enter {stream}")
        yield
        events.append("leave")

    def move(batch: Any, device: torch.device) -> Any:
        events.append(f"copy to {device}")
        return batch

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"copies of {device}")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Computing())
    monkeypatch.setattr(torch.cuda, "stream", in_stream)
    monkeypatch.setattr(devices, "batch_to", move)
    mover = BatchMover(torch.device("cuda"))
    for batch in (make_batch(), make_trajectories()):
        assert mover(batch) is batch
        assert events == ["enter copies of cuda", "copy to cuda", "leave", "wait for copies of cuda"]
        events.clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("is_pinned", [False, True])
def test_batches_arrive_whole_on_a_gpu_that_is_busy(make_batch: MakeBatch, is_pinned: bool) -> None:
    device = torch.device("cuda")
    mover, busy = BatchMover(device), torch.randn(2048, 2048, device=device)
    sums, expected = [], []
    for seed in range(50):
        batch = make_batch(seed, rows=4096)
        expected.append(float(batch.obs.double().sum()))
        if is_pinned:
            batch = batch._replace(obs=batch.obs.pin_memory(), next_obs=batch.next_obs.pin_memory())
        busy = torch.tanh(busy @ busy)
        moved = mover(batch)
        assert moved.obs.is_cuda
        assert moved.extras.keys() == batch.extras.keys()
        sums.append(moved.obs.double().sum())
    torch.testing.assert_close(torch.stack(sums).cpu(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dqn_on_a_gpu_follows_the_cpu(make_batch: MakeBatch) -> None:
    learners = [DQNLearner(QFunction(hiddens=[8], action_space=2, seed=0), device=name) for name in ("cpu", "cuda")]
    for i in range(5):
        for learner in learners:
            learner.optimize(i, make_batch(i))
    ours, theirs = (learner.model.tensors() for learner in learners)
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name].cpu(), rtol=1e-3, atol=1e-5)


class Late(Readback):
    """Brings numbers back as from CUDA, and records when it waits."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(torch.device("cpu"))
        self._is_late = True
        self._events = events
        self._begun = 0

    def _begin(self, values: torch.Tensor) -> tuple[torch.Tensor, Any]:
        self._begun += 1
        self._events.append(f"copy {self._begun} begins")
        return values.clone(), Ended(self._begun, self._events)


class Ended:
    def __init__(self, number: int, events: list[str]) -> None:
        self.number, self.events = number, events

    def synchronize(self) -> None:
        self.events.append(f"wait for copy {self.number}")


def test_numbers_of_an_update_are_waited_for_only_after_the_next_one_began_its_copy() -> None:
    events: list[str] = []
    late, found = Late(events), list[float]()
    for value in (1.0, 2.0, 3.0):
        late.bring(torch.tensor([value]), lambda values: found.append(float(values[0])))
    assert events == ["copy 1 begins", "copy 2 begins", "wait for copy 1", "copy 3 begins", "wait for copy 2"]
    assert found == [1.0, 2.0]
    late.flush()
    late.flush()
    assert found == [1.0, 2.0, 3.0]


class Priorities:
    """A replay that keeps the priorities that it gets, by the first transition of their batch."""

    wants_priorities = True
    global_step = 0

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def update_priorities(self, info: Any, priorities: Any) -> None:
        self.found[int(info.generation[0])] = priorities.copy()


def test_late_priorities_belong_to_their_own_batch_and_none_is_lost_in_a_checkpoint(make_batch: MakeBatch) -> None:
    at_once, late = Priorities(), Priorities()
    for replay in (at_once, late):
        model = QFunction(hiddens=[4], action_space=2, seed=0)
        learner = DQNLearner(model, replay)
        if replay is late:
            learner._readback = Late([])
        for i in range(4):
            learner.optimize(i, make_batch(i))
        assert len(replay.found) == (3 if replay is late else 4)
        learner.state_dict()
    assert late.found.keys() == at_once.found.keys()
    for generation, priorities in at_once.found.items():
        np.testing.assert_array_equal(late.found[generation], priorities)


@pytest.mark.parametrize("device", ["cpu", *GPUS])
def test_priorities_come_back_from_a_device(device: str, make_batch: MakeBatch) -> None:
    found: list[Priorities] = []
    for name in ("cpu", device):
        found.append(Priorities())
        learner = DQNLearner(QFunction(hiddens=[4], action_space=2, seed=0), found[-1], device=name)
        for i in range(4):
            learner.optimize(i, make_batch(i))
        learner.state_dict()
    assert found[0].found.keys() == found[1].found.keys() and len(found[0].found) == 4
    for generation, priorities in found[0].found.items():
        np.testing.assert_allclose(found[1].found[generation], priorities, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", *GPUS])
def test_metrics_of_any_kind_are_read_from_a_device(device: str) -> None:
    metrics: dict[str, torch.Tensor | float] = {
        "number": 1.5,
        "loss": torch.tensor(2.5, device=device, requires_grad=True),
        "count": torch.tensor([3], device=device),
        "share": torch.tensor(True, device=device),
    }
    read = Readings().read(metrics, updates=1, step=1)
    assert list(read.items()) == [("number", 1.5), ("loss", 2.5), ("count", 3.0), ("share", 1.0)]


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(devices, "_is_onednn_exact", lambda: True)
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("vendor_id : AuthenticAMD\n")
    return cpu


def test_wide_layers_multiply_in_onednn_on_a_cpu_whose_vectors_mkl_leaves_half_unused(amd: Path) -> None:
    assert multiplication_of([torch.zeros(256), torch.zeros(64, 256)], amd) is onednn


@pytest.mark.parametrize("shape", [(64, 64), (127, 128), (1 << 20,)])
def test_narrow_layers_do_not_because_a_call_costs_more(amd: Path, shape: tuple[int, ...]) -> None:
    assert multiplication_of([torch.zeros(shape)], amd) is nullcontext


@pytest.mark.parametrize(
    ("capability", "vendor", "is_exact"),
    [("AVX2", "AuthenticAMD", True), ("AVX512", "GenuineIntel", True), ("AVX512", "AuthenticAMD", False)],
)
def test_other_cpus_do_not(
    amd: Path, monkeypatch: pytest.MonkeyPatch, capability: str, vendor: str, is_exact: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(devices, "_is_onednn_exact", lambda: is_exact)
    amd.write_text(f"vendor_id : {vendor}\n")
    assert multiplication_of([torch.zeros(256, 256)], amd) is nullcontext
    assert multiplication_of([torch.zeros(256, 256)], amd.with_name("not there")) is nullcontext


def test_an_update_multiplies_so_and_nothing_after_it(make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "multiplication_of", lambda parameters: onednn)
    products, seen = torch.backends.mkldnn.matmul, list[str]()

    class Seeing(DQNLearner):
        def learn(self, i: int, batch: Any) -> Any:
            seen.append(products.fp32_precision)
            if i:
                raise ValueError
            return super().learn(i, batch)

    learner, before = Seeing(QFunction((8,), action_space=2)), products.fp32_precision
    learner.optimize(0, make_batch())
    with pytest.raises(ValueError):
        learner.optimize(1, make_batch())
    assert seen == ["bf16", "bf16"]
    assert products.fp32_precision == before != "bf16"


def test_bfloat16_is_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "onednn", partial(torch.autocast, "cpu", torch.bfloat16))
    assert not devices._is_onednn_exact.__wrapped__()
