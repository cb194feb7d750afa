"""Compiled graphs on disk: a cache that all runs of a machine share, and the process that fills it.

    python -m surreal.learner.stepping.graph_cache JOB PARENT_PID

An entry is a library, `NAME.pt2`, and its interface, `NAME.json`, which is written last. Nothing but this user can
write where they are, because a library is executed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surreal.learner.stepping.recording import Interface

#: What compiling takes: for a process that does, and for each operation of a graph, CPU s.
BASE_COST_S = 7.0
COST_PER_NODE_S = 0.025
#: Compiles for this machine, by functions that are called once.
_OPTIONS = {"aot_inductor.compile_wrapper_opt_level": "O0", "compile_threads": 1}
_POLL_S = 1.0
#: How long an entry is kept that nothing uses, s.
_KEPT_S = 30 * 86_400.0


@dataclass(frozen=True)
class Entry:
    """An entry of the cache."""

    interface: Interface
    library: Path
    cost_s: float  #: CPU seconds that compiling took

    def load(self, device: torch.device) -> Any:
        """Return the function, of tensors in the interface's order; raises `RuntimeError` if it does not load."""
        index = -1 if device.type == "cpu" else (device.index or 0)
        before = os.environ.get("TMPDIR")
        with tempfile.TemporaryDirectory(dir=self.library.parent) as place:
            os.environ["TMPDIR"] = place  # where torch unpacks a library; a mapped file needs no name
            try:
                loader = torch._C._aoti.AOTIModelPackageLoader(str(self.library), "model", True, 1, index)
            finally:
                if before is None:
                    del os.environ["TMPDIR"]
                else:
                    os.environ["TMPDIR"] = before
        return loader.run


class GraphCache:
    """Compiled graphs by name, in `$XDG_CACHE_HOME/surreal/updates`; raises `OSError` if others may write there."""

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = Path(home) / "surreal" / "updates" if folder is None else folder
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{self.folder} can be written by other users, so nothing in it may be executed")

    def get(self, name: str) -> Entry | None:
        """Return an entry; None if there is none that can be read."""
        description, library = self.folder / f"{name}.json", self.folder / f"{name}.pt2"
        try:
            data = json.loads(description.read_text(encoding="utf-8"))
            for path in (description, library):
                os.utime(path)
            return Entry(Interface.from_json(data["interface"]), library, float(data["cost_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(
        self,
        name: str,
        graph: torch.fx.GraphModule,
        interface: Interface,
        inputs: Sequence[Tensor],
        *,
        niceness: int = 0,
    ) -> Compiling:
        """Start a process that adds an entry; of the inputs, only shapes, strides, dtypes and devices count.

        Raising `niceness`, 0 to 19, leaves more of the CPU to others.
        """
        self._sweep()
        shapes = [(tuple(each.shape), each.stride(), each.dtype, each.device) for each in inputs]
        job = {
            "name": name,
            "folder": str(self.folder),
            "interface": interface.as_json(),
            "inputs": shapes,
            "graph": graph,
            "niceness": niceness,
        }
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".job", delete=False) as file:
            pickle.dump(job, file)
        return Compiling(self, name, Path(file.name))

    def _sweep(self) -> None:
        """Remove what was not used for long, also what killed processes left."""
        for path in self.folder.iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _KEPT_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


class Compiling:
    """A process that compiles the graph in the file `job`, which it removes. It ends with its parent."""

    def __init__(self, cache: GraphCache, name: str, job: Path) -> None:
        self._cache = cache
        self._name = name
        self._job = job
        command = [sys.executable, "-m", __spec__.name, str(job), str(os.getpid())]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(torch.get_num_threads()),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TMPDIR": str(cache.folder),  # precompiled headers stay, and nothing is left elsewhere
        }
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - a pipe would fill up
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=environment,
            process_group=0,
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def result(self) -> Entry:
        """Wait for the entry; raises `RuntimeError` with the compiler's message if compiling failed."""
        code = self._process.wait()
        self._job.unlink(missing_ok=True)
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        self._output.close()
        entry = self._cache.get(self._name)
        if entry is None:
            raise RuntimeError(lines[-1] if lines else f"the compiler ended with exit code {code}")
        return entry

    def close(self) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, 15)
        self._process.wait()
        self._output.close()
        self._job.unlink(missing_ok=True)


def digest(parts: Mapping[str, Any]) -> str:
    """Return a name for what these parts, and this machine's torch, compile to."""
    machine = {
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "options": _OPTIONS,
    }
    return hashlib.sha256(json.dumps([parts, machine], sort_keys=True, default=repr).encode()).hexdigest()[:32]


def _compile(job: Mapping[str, Any]) -> None:
    folder, name = Path(job["folder"]), job["name"]
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / f"{name}.json").exists():
            return  # another run was faster
        inputs = tuple(
            torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
            for shape, stride, dtype, device in job["inputs"]
        )
        with tempfile.TemporaryDirectory(dir=folder) as place, torch.no_grad():
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = place
            program = torch.export.export(job["graph"], inputs, strict=False)
            # The files that a library is unpacked from are gone when a GPU's kernels are first loaded.
            on_gpu = any(each.is_cuda for each in inputs)
            options = {**_OPTIONS, "aot_inductor.embed_kernel_binary": True} if on_gpu else _OPTIONS
            path = torch._inductor.aoti_compile_and_package(
                program, package_path=str(Path(place) / "graph.pt2"), inductor_configs=options
            )
            os.replace(path, folder / f"{name}.pt2")
            used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            cost_s = sum(each.ru_utime + each.ru_stime for each in used)
            text = json.dumps({"interface": job["interface"], "cost_s": cost_s})
            (Path(place) / "entry.json").write_text(text, encoding="utf-8")
            os.replace(Path(place) / "entry.json", folder / f"{name}.json")


def _end_with(parent: int) -> None:
    """End this process, and the compilers that it started, when its parent is gone, or if it was gone before."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os.killpg(0, 9)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    import torch._dynamo  # a graph that is read needs modules that only this imports

    with open(sys.argv[1], "rb") as opened:
        job_of_parent = pickle.load(opened)  # noqa: S301 - the folder belongs to this user alone
    os.nice(job_of_parent["niceness"])
    _compile(job_of_parent)
