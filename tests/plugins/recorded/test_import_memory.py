"""Imports are streamed: their memory is bounded by episodes and chunks, whatever the size of a dataset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:minari"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc"),
]

IMAGES, ACTIONS = spaces.Box(0, 255, (64, 64), np.uint8), spaces.Discrete(3)
STEPS = 100  # of an episode
SMALL, LARGE = 80, 320  # episodes; the small dataset fills every buffer of an import

#: Converts and imports two datasets, and prints how much more memory each took for the second, at any chunk, in bytes.
#: Pages of files that are mapped do not count: the system takes them back when it needs them.
PROGRAM = """
import sys
from pathlib import Path

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.stream import Stream
from surreal.replay.archive.files import ArchiveWriter
from surreal.replay.archive.importing import import_replay
from surreal.replay.archive.minari_import import convert_dataset

peak = 0


def measured(method):
    def call(*args, **kwargs):
        global peak
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = max(peak, 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1]))
        return method(*args, **kwargs)

    return call


Stream.append, ArchiveWriter.add = measured(Stream.append), measured(ArchiveWriter.add)
address, *sources = sys.argv[1:]
peaks = []
for number, source in enumerate(sources):
    convert_dataset(source, Path(str(number)))
    peaks.append(peak)
peak = 0
for number in range(len(sources)):
    with RedisClient(address, run=f"import-{number}") as client:
        import_replay(client, Path(str(number)))
        client.delete_run()
    peaks.append(peak)
print(peaks[1] - peaks[0], peaks[3] - peaks[2])
"""


def write(name: str, episodes: int) -> str:
    """Write images that cannot be compressed, by Minari's own package."""
    rng = np.random.default_rng(0)
    buffers = [
        minari.data_collector.episode_buffer.EpisodeBuffer(
            observations=rng.integers(0, 256, (STEPS + 1, *IMAGES.shape), np.uint8),
            actions=rng.integers(0, 3, STEPS),
            rewards=np.zeros(STEPS, np.float32),
            terminations=np.arange(STEPS) == STEPS - 1,
            truncations=np.zeros(STEPS, np.bool_),
        )
        for _ in range(episodes)
    ]
    options: dict[str, Any] = {"observation_space": IMAGES, "action_space": ACTIONS, "jpeg_encoding": False}
    minari.create_dataset_from_buffers(f"made/{name}-v0", buffers, **options)
    return f"minari:made/{name}-v0"


def test_a_dataset_four_times_as_large_takes_hardly_more_memory_to_import(
    redis_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    sources = [write("small", SMALL), write("large", LARGE)]
    command = [sys.executable, "-c", PROGRAM, redis_server.address, *sources]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    more_bytes = (LARGE - SMALL) * STEPS * 64 * 64
    converting, importing = map(int, done.stdout.split())
    assert converting < more_bytes / 2
    assert importing < more_bytes / 2
