"""The learner's operators and kernels, recorded by torch.profiler: a callback that `surreal profile --kernels` adds."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surreal.run.observers import Callback

if TYPE_CHECKING:
    from surreal.learner import Learner

#: Import path of the callback, for a configuration.
CLASS_PATH = f"{__name__}.KernelRecorder"
#: Processes that do no update.
_ACTING = ("agent", "eval", "rlx")
#: Updates before the recording: the first ones allocate memory, and the profiler itself needs some to warm up.
_SKIPPED, _WARMUP = 2, 1
#: Rows of the table.
_ROWS = 15
_NAME_WIDTH = 50


class KernelRecorder(Callback):
    """Records some updates of a learner, and writes `PROCESS.json.gz`, a timeline, and `PROCESS.txt`, a table."""

    def __init__(self, folder: str, updates: int = 20, process: str = "learner") -> None:
        self._folder = Path(folder)
        self._updates = updates
        self._process = process
        self._profiler: Any = None
        if not process.startswith(_ACTING):
            importlib.import_module("torch._dynamo")  # the profiler needs it, and would import it between two updates

    def on_update(self, learner: Learner) -> None:
        if self._profiler is None:
            self._profiler = self._start()
        self._profiler.step()

    def close(self) -> None:
        if self._profiler is not None:
            self._profiler.stop()  # writes the updates so far, if they are fewer

    def _start(self) -> Any:
        from torch import profiler

        schedule = profiler.schedule(wait=_SKIPPED, warmup=_WARMUP, active=self._updates, repeat=1)
        started = profiler.profile(schedule=schedule, on_trace_ready=self._write)
        started.start()
        return started

    def _write(self, profiler: Any) -> None:
        averages = profiler.key_averages()
        has_kernels = any(each.self_device_time_total for each in averages)
        order = "self_device_time_total" if has_kernels else "self_cpu_time_total"
        table = averages.table(sort_by=order, row_limit=_ROWS, max_name_column_width=_NAME_WIDTH)
        profiler.export_chrome_trace(str(self._folder / f"{self._process}.json.gz"))
        (self._folder / f"{self._process}.txt").write_text(table, encoding="utf-8")
