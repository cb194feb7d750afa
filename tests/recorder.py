"""What a Redis server executes: each command with the kinds of keys that it is about."""

from __future__ import annotations

import re
import subprocess
import time
from fnmatch import translate
from pathlib import Path
from urllib.parse import parse_qs

from surreal.distributed import RedisClient
from surreal.distributed.connection.keys import RUN_KINDS, RUNS, SHARD_KINDS, kind_pattern


class Recorder:
    """Reads what MONITOR says.

    Args:
        address: of the server; a socket, with user and password where they are needed.
        path: of a file for what it says.
    """

    def __init__(self, address: str, path: Path) -> None:
        self._client = RedisClient(address)
        self._output = path.open("wb")
        self._read = path.open("rb")
        socket, _, query = address.removeprefix("unix://").partition("?")
        login = parse_qs(query)
        user = ["--user", *login["username"], "--pass", *login["password"]] if login else []
        self._process = subprocess.Popen(
            ["redis-cli", "-s", socket, *user, "MONITOR"], stdout=self._output, stderr=subprocess.DEVNULL
        )
        self._marks = 0
        self.take()

    def take(self) -> set[str]:
        """Commands since the last call, with the kinds of their keys: `get config`."""
        self._marks += 1
        mark = f"mark-{self._marks}".encode()
        deadline_s, text = time.monotonic() + 20.0, b""
        while mark not in text:
            assert time.monotonic() < deadline_s
            self._client.execute("ECHO", mark)
            time.sleep(0.002)
            text += self._read.read()
        found = set()
        for line in text.splitlines():
            words = [word.decode("latin-1") for word in re.findall(rb'"((?:[^"\\]|\\.)*)"', line)]
            if words and not words[-1].startswith("mark-"):
                kinds = {kind for word in words[1:] for kind in kinds_of(word)}
                found |= {f"{name_of(words)} {kind}" for kind in kinds} or {name_of(words)}
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()
        self._read.close()
        self._client.close()


_PATTERNS = {kind: re.compile(translate(kind_pattern(kind))) for kind in (*SHARD_KINDS, *RUN_KINDS, RUNS)}


def kinds_of(word: str) -> list[str]:
    return [kind for kind, pattern in _PATTERNS.items() if word.startswith("surreal:") and pattern.match(word)]


def name_of(words: list[str]) -> str:
    return "xinfo|stream" if words[0].lower() == "xinfo" else words[0].lower()
