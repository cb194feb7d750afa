"""The C++ client: built with every warning an error, tested by its own program, and run against a real server."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import pytest

ROOT = Path(__file__).parents[4]
SOURCES = ROOT / "clients" / "cpp"
BUILT = ROOT / ".cache" / "cpp"
VECTORS = ROOT / "tests" / "golden" / "rlx_vectors.json"
CART = gymnasium.make("CartPole-v1").observation_space
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wconversion")
#: Reads and writes outside of what is ours, and arithmetic without a meaning, end the program.
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(compiler: str, source: str, *flags: str) -> Path:
    """Give the program; made once, by whichever test needs it first, of the same texts by the same compiler."""
    BUILT.mkdir(parents=True, exist_ok=True)
    made_by = [compiler, *STRICT, *flags, source, run(compiler, "--version")]
    texts = [path.read_bytes() for path in sorted(SOURCES.iterdir())]
    program = BUILT / f"{Path(source).stem}-{hashlib.sha256(repr((made_by, texts)).encode()).hexdigest()[:16]}"
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            new = program.with_suffix(".new")
            command = [compiler, *STRICT, *flags, str(SOURCES / source), "-o", str(new)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=280)
            assert done.returncode == 0, done.stderr[-4000:]
            new.rename(program)
    return program


def run(*command: str | Path, stdin: str = "", timeout_s: float = 240.0) -> str:
    done = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, text=True, timeout=timeout_s)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture
def program(require_tool: Any) -> Path:
    """The tests' program."""
    return build(require_tool("g++", "c++"), "test_surreal_rlx.cpp", *SANITIZED)


def test_values_limits_frames_and_damaged_messages(program: Path) -> None:
    assert run(program) == "all is well\n"


def test_golden_vectors_are_made_read_and_written_byte_for_byte(program: Path) -> None:
    vectors = json.loads(VECTORS.read_text())
    lines = "".join(f"{name} {vector['frame_hex']}\n" for name, vector in vectors.items())
    assert run(program, "golden", stdin=lines) == lines


def test_sessions_with_a_real_server(program: Path, serve: Any) -> None:
    served = serve(observation_space=CART, max_amend_s=60.0)
    assert run(program, "play", served.address) == "all is well\n"
    served.wait(lambda: len(served.ended("truncated")) == 20)
    assert all(episode.rewards == [1.0] * 9 for episode in served.ended("truncated"))
    assert [episode.rewards for episode in served.ended("terminated")] == [[1.0, 0.5]]
    assert ("scalar", "client/cpp", 2.5, 3) in served.metrics
    assert [name for _, name, _, _ in served.metrics].count("client/game_score") == 20


def test_the_example_balances_a_pole(require_tool: Any, serve: Any) -> None:
    example = build(require_tool("g++", "c++"), "cartpole.cpp", "-O1")
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
