"""Peers with other dependencies: each is a process in its own virtual environment, with one request per line.

The environments are made under .cache when they are first needed, by `python -m benchmarks.X` or `make bench`. A peer
that cannot be installed is reported as skipped, with the reason, and the rest of the benchmark runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_BASELINES = Path(__file__).parent / "baselines"
CACHE = Path(__file__).parents[1] / ".cache"


class Requirement(NamedTuple):
    """The dependencies of a peer.

    Args:
        module: Module whose import shows whether the peer is installed.
        packages: Packages for pip.
        newest_python: Newest version of Python with wheels; None: any.
        shares_ours: Whether it also sees the packages of this interpreter, so that torch is the same and stored once.
    """

    module: str
    packages: Sequence[str]
    newest_python: tuple[int, int] | None = None
    shares_ours: bool = False


CPPRB = Requirement("cpprb", ["cpprb==11.0.0"])
RLOX = Requirement("rlox", ["rlox==1.2.0"], shares_ours=True)
TORCHRL = Requirement("torchrl", ["torchrl==0.14.1", "tensordict==0.14.3"], shares_ours=True)
SB3 = Requirement(
    "stable_baselines3",
    ["stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "opencv-python-headless"],
    shares_ours=True,
)
#: Its own list of requirements names an older gymnasium. What is not here comes from this interpreter.
_D3RLPY_NEEDS = (
    "gym==0.26.2", "gym-notices==0.1.0", "structlog==26.1.0", "dataclasses-json==0.6.7", "marshmallow==4.4.0",
    "typing-inspect==0.9.0", "scikit-learn==1.9.1", "joblib==1.6.0", "threadpoolctl==3.8.0",
)  # fmt: skip
D3RLPY = Requirement("d3rlpy", ["--no-deps", "d3rlpy==2.8.1", *_D3RLPY_NEEDS], shares_ours=True)
#: It needs an older mujoco, and lists what only gamepads and videos need.
GYM_HIL = Requirement("gym_hil", ["--no-deps", "gym-hil==0.1.14", "mujoco==3.8.1"], shares_ours=True)
ZOO = Requirement("rl_zoo3", ["rl-zoo3==2.9.2", "sb3-contrib==2.9.2", "stable-baselines3==2.9.2"], shares_ours=True)
SBX = Requirement("sbx", ["sbx-rl==0.28.0"], shares_ours=True)
SAMPLE_FACTORY = Requirement("sample_factory", ["sample-factory==2.1.1", "ale-py==0.12.1", "torch==2.13.0"])
#: Its own list names an older torch, whose wheels have CUDA, and what only robots, displays and uploads need.
_LEROBOT_NEEDS = (
    "accelerate==1.15.0", "av==15.1.0", "datasets==4.8.5", "deepdiff==8.6.2", "diffusers==0.35.2", "dill==0.4.1",
    "draccus==0.10.0", "einops==0.8.2", "evdev==2.0.0", "fsspec==2026.2.0", "grpcio==1.73.1", "gym-hil==0.1.14",
    "hf-xet==1.8.0", "huggingface-hub==0.35.3", "jsonlines==4.0.0", "lerobot==0.4.4", "mujoco==3.8.1",
    "multiprocess==0.70.19", "numpy==2.2.6", "opencv-python-headless==4.12.0.88", "orderly-set==5.5.0",
    "packaging==25.0", "pandas==3.1.1", "protobuf==6.31.1", "pynput==1.8.2", "pyserial==3.5", "python-xlib==0.33",
    "pyyaml-include==1.4.1", "regex==2026.11.19", "termcolor==3.3.0", "tokenizers==0.22.2", "toml==0.10.2",
    "torchvision==0.28.0", "transformers==4.57.6", "typing-inspect==0.9.0", "wandb==0.24.2",
)  # fmt: skip
LEROBOT = Requirement("lerobot", ["--no-deps", *_LEROBOT_NEEDS], shares_ours=True)
REVERB = Requirement("reverb", ["dm-reverb[tensorflow]==0.14.0"], newest_python=(3, 11))


def find_python(needs: Requirement, python: Path | None = None) -> Path | str:
    """Return an interpreter with the peer's dependencies, or the reason why there is none.

    Args:
        needs: Dependencies of the peer.
        python: The interpreter to use; None: that of an environment under .cache, which is made if missing.
    """
    if python is None:
        folder = CACHE / f"venv-{needs.module}"
        python = folder / "bin" / "python"
        if not (folder / "installed").exists():
            base = _base_python(needs.newest_python)
            if base is None:
                return f"{needs.module} needs Python {needs.newest_python} or older, and none is on the PATH"
            subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
            if needs.shares_ours:
                (site,) = folder.glob("lib/python*/site-packages")
                (site / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs.packages]
            if subprocess.run(install, check=False, stdout=sys.stderr).returncode == 0:
                (folder / "installed").touch()
    found = subprocess.run([str(python), "-c", f"import {needs.module}"], capture_output=True, text=True, check=False)
    if found.returncode:
        return f"{python} cannot import {needs.module}: {found.stderr.strip().splitlines()[-1:]}"
    return python


def _base_python(newest: tuple[int, int] | None) -> str | None:
    if newest is None or sys.version_info[:2] <= newest:
        return sys.executable
    return shutil.which(f"python{newest[0]}.{newest[1]}")


def script_path(script: str) -> Path:
    """Return the path of a script of `benchmarks/baselines`."""
    return _BASELINES / script


class Peer:
    """The process of a peer.

    Args:
        script: File in `benchmarks/baselines`.
        python: Its interpreter.
    """

    def __init__(self, script: str, python: Path) -> None:
        command = [str(python), str(script_path(script))]
        CACHE.mkdir(exist_ok=True)
        with (CACHE / f"{Path(script).stem}.log").open("w") as log:  # some peers print a lot
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def ask(self, line: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the peer has no pipes")
        stdin.write(line + "\n")
        stdin.flush()
        answer = stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the peer has ended; the reason is in {CACHE}/*_peer.log")
        return answer

    def call(self, command: str, **arguments: Any) -> Any:
        """Send a command as JSON, and return its answer."""
        return json.loads(self.ask(json.dumps({"command": command, **arguments})))

    def close(self) -> None:
        """End the peer. One that is not asked anything may still be importing."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def ask_script(python: Path, script: str, *arguments: object, threads: int | None) -> Any:
    """Run a script of `benchmarks/baselines` to its end, and return the JSON of its last line.

    Args:
        python: interpreter.
        script: file in that folder.
        arguments: arguments of the script.
        threads: number of threads, passed as `--threads`; None: the script starts worker processes instead.
    """
    command = [str(python), str(script_path(script)), *map(str, arguments)]
    command += [] if threads is None else ["--threads", str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads or 1)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        raise RuntimeError(f"{script} failed: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def skip(name: str, reason: str) -> None:
    """Report that a comparison was not made."""
    print_line({"name": name, "skipped": reason})


def print_line(line: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def rotate(measures: Mapping[str, Callable[[], float]], rounds: int, *, warm_ups: int = 1) -> dict[str, list[float]]:
    """Measure all in turn for some rounds, after some as warm-ups; each returns a rate."""
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(rounds + warm_ups)][warm_ups:]
    return {name: [turn[name] for turn in turns] for name in measures}
