"""`StartedRun`: a run that chaos starts itself, on its own Redis that outlives it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.files import find_redis_server
from surreal.plugins.chaos.disturbances.failover import ReplicatedRedis
from surreal.plugins.chaos.disturbances.processes import MACHINE_KINDS, Guard, Kind
from surreal.plugins.chaos.disturbances.servers import Machine
from surreal.plugins.chaos.subject import Keeps, Server, Subject
from surreal.run.launch.supervise import last_error_line
from surreal.run.process.run_folder import RESULT_NAME, RUNS_FOLDER, new_run_id

#: The run ends only when chaos does, and survives any number of deaths. The caller's settings override these.
_SETTINGS = ("run.max_env_steps=1000000000", "run.stop_at_return=null", "run.restart_limit=1000000")


class StartedRun:
    """`surreal run` of a preset or file, in a separate process."""

    def __init__(
        self, source: str, overrides: Sequence[str], run_dir: Path | None, guard: Guard, kinds: Collection[Kind] = ()
    ) -> None:
        self._overrides = (*_SETTINGS, *overrides)
        self._source = source
        self._guard, self._kinds = guard, kinds
        self.config: Config = load_config(source, self._overrides)
        redis = self.config.redis
        if redis.address or redis.parameter_address or self.config.replay_addresses != [None]:
            raise ConfigError(
                "surreal chaos starts runs on its own Redis; this configuration names another: "
                "start it with `surreal run`, then disturb it by its name",
                key="redis.address",
            )
        self.run = new_run_id(self.config.name)
        self.folder = (run_dir or RUNS_FOLDER / self.run).absolute()
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes]
        self._console: Path
        self.subject: Subject

    def __enter__(self) -> Self:
        with self._stack:  # ends everything if a later step fails
            place = Path(tempfile.mkdtemp(prefix="surreal-chaos-"))
            self._stack.callback(shutil.rmtree, place, ignore_errors=True)
            self._console = place / "run.out"
            machine = Machine(place) if set(self._kinds) & set(MACHINE_KINDS) else None
            program = None if machine is None else machine.wrap(find_redis_server())
            server: EmbeddedRedis | ReplicatedRedis
            if Kind.FAILOVER in self._kinds:
                server = ReplicatedRedis(place, maxmemory_bytes=self.config.own_redis_bytes, program=program)
            else:
                server = EmbeddedRedis(
                    maxmemory_bytes=self.config.own_redis_bytes, appendonly_dir=place / "redis", program=program
                )
            self._stack.enter_context(server)
            client = self._stack.enter_context(RedisClient(server.address, run=self.run, timeout_s=2.0))
            _write_through(client)
            self.subject = self._describe(server, client, machine)
            self._process = self._start(server.address, {} if machine is None else machine.environment)
            self._stack.callback(self._kill)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._process.pid)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the run; None while it continues."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        return last_error_line(self._console)

    def hurry(self) -> None:
        """Make it end sooner: the second signal cuts its drain short."""
        for _ in range(2):
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def result(self) -> dict[str, Any]:
        """Read its `result.json`; empty if there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / RESULT_NAME).read_text())
        except (OSError, ValueError):
            return {}
        return found

    def _describe(
        self, server: EmbeddedRedis | ReplicatedRedis, client: RedisClient, machine: Machine | None
    ) -> Subject:
        def kill() -> int:
            pid = server.pid
            server.kill()
            return pid

        def start() -> None:
            server.start()
            _write_through(client)

        replicas = server if isinstance(server, ReplicatedRedis) else None
        return Subject(
            title=f"run {self.run} of {self._source}",
            config=self.config,
            folder=self.folder,
            client=client,
            replay=ReplayShards(client, self.config.num_shards),
            parameter_client=client,
            servers=[Server(client, Keeps.ALL, kill, start, is_exclusive=True, replicas=replicas, is_own=True)],
            is_new=True,
            can_kill=True,
            machine=machine,
        )

    def _start(self, address: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "surreal", "run", self._source, "--quiet"]
        command += ["--run", self.run, "--run-dir", str(self.folder)]
        for setting in self._overrides:
            command += ["--set", setting]
        with self._console.open("ab") as console:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                # The address may have a password, and every user can read arguments.
                env={**os.environ, **environment, "SURREAL_RUN_REDIS": address},
            )
        self._guard.open(signal.SIGTERM, process.pid)
        return process

    def _kill(self) -> None:
        """Kill the launcher if it still runs; its children end with it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._guard.close(signal.SIGTERM, self._process.pid)


def _write_through(client: RedisClient) -> None:
    """Make Redis write each command to its file before it answers, so that acknowledged data survives its death."""
    client.execute("CONFIG", "SET", "appendfsync", "always")
