"""Make the pictures in docs/images from short runs: the dashboard in Chromium, and the plots of `surreal plot`.

    python -m benchmarks.pictures                   train missing runs in .cache/pictures/runs: about ten minutes
    python -m benchmarks.pictures --runs FOLDER     use these runs

One run is in progress during the pictures of the dashboard, so that they show its processes.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from surreal.plugins.dashboard.commands import serve
from tests.browser import Browser

_ROOT = Path(__file__).parents[1]
_IMAGES = _ROOT / "docs" / "images"
_SURREAL = [sys.executable, "-m", "surreal"]
_SEEDS = (0, 1, 2)
#: Name of a run, preset and settings; all are trained with each seed.
_RUNS = {
    "cartpole-ppo": ("cartpole-ppo", ["run.max_env_steps=60000"]),
    "cartpole-dqn": ("cartpole-dqn", ["run.max_env_steps=25000", "eval.record_video_every=4"]),
    "cartpole-dqn-slow": (
        "cartpole-dqn", ["run.max_env_steps=25000", "learner.args.initial_learning_rate=0.0002"]
    ),
}  # fmt: skip
_LIVE = "cartpole-dqn-3"
#: Pane, width in pixels, theme.
_SHOTS = [
    ("curves", 1400, "light"),
    ("curves", 1400, "dark"),
    ("curves", 400, "light"),
    ("curves", 400, "dark"),
    ("run", 1400, "light"),
    ("run", 1400, "dark"),
    ("run", 400, "light"),
    ("settings", 1400, "light"),
    ("logs", 1400, "dark"),
]
_READY = {
    "curves": "document.querySelectorAll('.chart .main-svg').length > 8",
    "run": "document.querySelectorAll('#run-charts .main-svg').length > 2 && document.querySelector('#run-facts td')",
    "settings": "document.querySelector('#settings td')",
    "logs": "document.querySelectorAll('.log-line').length > 20",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=_ROOT / ".cache" / "pictures" / "runs")
    runs = parser.parse_args().runs
    _IMAGES.mkdir(exist_ok=True)
    for name, (preset, settings) in _RUNS.items():
        for seed in _SEEDS:
            if not (runs / f"{name}-{seed}").exists():
                subprocess.run(train(runs / f"{name}-{seed}", preset, settings, seed), check=True)
    plot = ["plot", *(str(runs / f"{name}-{seed}") for name in _RUNS for seed in _SEEDS)]
    subprocess.run([*_SURREAL, *plot, "--smooth", "0.6", "-o", str(_IMAGES / "plot.png")], check=True)
    compress(_IMAGES / "plot.png", (_IMAGES / "plot.png").read_bytes())
    shutil.rmtree(runs / _LIVE, ignore_errors=True)
    command = train(runs / _LIVE, "cartpole-dqn", ["run.max_env_steps=200000"], 3)
    with (
        subprocess.Popen(command) as live,
        dashboard(runs) as page,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        try:
            while live.poll() is None and not (runs / _LIVE / "metrics.jsonl").exists():
                time.sleep(0.5)
            program = shutil.which("chromium") or shutil.which("chromium-browser") or "google-chrome"
            with Browser(program, Path(folder, "profile")) as browser:
                for pane, width, theme in _SHOTS:
                    shoot(browser, page, pane, width, theme)
        finally:
            live.terminate()


def train(folder: Path, preset: str, settings: list[str], seed: int) -> list[str]:
    """Return the command that trains a run to its end."""
    overrides = [f"--set={setting}" for setting in ("run.stop_at_return=null", *settings)]
    return [*_SURREAL, "run", preset, "--quiet", "--seed", str(seed), "--run-dir", str(folder), *overrides]


@contextmanager
def dashboard(runs: Path) -> Iterator[str]:
    """Serve the dashboard of these runs, and yield its address."""
    ready, stop, found = threading.Event(), threading.Event(), list[str]()

    def on_ready(page: str, _: str) -> None:
        found.append(page)
        ready.set()

    options = {"redis": None, "host": "127.0.0.1", "port": 0, "token_file": None, "on_ready": on_ready, "stop": stop}
    thread = threading.Thread(target=serve, args=([runs],), kwargs=options)
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join()


def shoot(browser: Browser, page: str, pane: str, width: int, theme: str) -> None:
    """Take the picture of a pane."""
    height = 900 if width > 900 else 860
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setScrollbarsHidden", hidden=True)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    browser.open(page)
    browser.wait("document.querySelector('.tab')")
    browser.evaluate(
        f"[...document.querySelectorAll('.tab')].find((tab) => tab.textContent.toLowerCase() === '{pane}').click()"
    )
    # Only the evaluation's logs: others name folders of this machine.
    browser.type("log-filter", "mean return")
    browser.wait(_READY[pane])
    browser.wait("(window.settled = (window.settled ?? 0) + 1) > 60")  # a few seconds, until animations have ended
    path = _IMAGES / f"dashboard-{pane}-{width}-{theme}.png"
    browser.screenshot(path)
    compress(path, path.read_bytes())


def compress(path: Path, data: bytes) -> None:
    """Write a picture with 256 colors."""
    with Image.open(io.BytesIO(data)) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
