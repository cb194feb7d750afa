"""The C++ client: built with every warning an error, tested by its own program, and run against a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import pytest

ROOT = Path(__file__).parents[4]
SOURCES = ROOT / "clients" / "cpp"
VECTORS = ROOT / "tests" / "golden" / "rlx_vectors.json"
CART = gymnasium.make("CartPole-v1").observation_space
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wconversion")
#: Reads and writes outside of what is ours, and arithmetic without a meaning, end the program.
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(compiler: str, source: str, folder: Path, *flags: str) -> Path:
    program = folder / source.removesuffix(".cpp")
    command = [compiler, *STRICT, *flags, str(SOURCES / source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    return program


def run(*command: str | Path, stdin: str = "", timeout_s: float = 240.0) -> str:
    done = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"folder": tmp_path_factory.mktemp("cpp")}


@pytest.fixture
def program(built: dict[str, Path], require_tool: Any) -> Path:
    """The tests' program, built once."""
    if "test" not in built:
        built["test"] = build(require_tool("g++", "c++"), "test_surreal_rlx.cpp", built["folder"], *SANITIZED)
    return built["test"]


def test_values_limits_frames_and_damaged_messages(program: Path) -> None:
    assert run(program) == "all is well\n"


def test_golden_vectors_are_made_read_and_written_byte_for_byte(program: Path) -> None:
    vectors = json.loads(VECTORS.read_text())
    lines = "".join(f"{name} {vector['frame_hex']}\n" for name, vector in vectors.items())
    assert run(program, "golden", stdin=lines) == lines


def test_sessions_with_a_real_server(program: Path, serve: Any) -> None:
    served = serve(observation_space=CART)
    assert run(program, "play", served.address) == "all is well\n"
    served.wait(lambda: len(served.ended("truncated")) == 20)
    assert all(episode.rewards == [1.0] * 9 for episode in served.ended("truncated"))
    assert [episode.rewards for episode in served.ended("terminated")] == [[1.0, 0.5]]
    assert ("scalar", "client/cpp", 2.5, 3) in served.metrics
    assert [name for _, name, _, _ in served.metrics].count("client/game_score") == 20


def test_the_example_balances_a_pole(built: dict[str, Path], require_tool: Any, serve: Any) -> None:
    example = build(require_tool("g++", "c++"), "cartpole.cpp", built["folder"], "-O1")
    served = serve(observation_space=CART)
    for wrong in ("abc", "0", "3x", "3 --explore"):
        done = subprocess.run([example, served.address, *wrong.split()], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr[:7]) == (2, "", "usage: ")
    output = run(example, served.address, "3")
    served.wait(lambda: len(served.ended()) == 3)
    lengths = [len(episode.rewards) for episode in served.ended()]
    assert [float(line.rpartition(" ")[2]) for line in output.splitlines()] == lengths
    # The physics are CartPole's: the policy that keeps gymnasium's pole up for hundreds of steps does so here.
    assert min(lengths) > 100
    assert all(CART.contains(state) for episode in served.ended() for state in episode.states[:-1])
