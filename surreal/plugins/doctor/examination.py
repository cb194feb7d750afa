"""Runs the checks of all sections, in order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from surreal.base.errors import ConfigError
from surreal.base.system.process import count_cores
from surreal.config import Config, to_yaml
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.apart import run_apart
from surreal.plugins.doctor.finding import Check, Finding, fault, ok, run_check
from surreal.plugins.doctor.look import Look, clocks, counts, look_at, memory, size, usage
from surreal.plugins.doctor.subject import Subject

SECTIONS = ("installation", "redis", "clocks", "environment", "model", "run")
#: Sections for a run in progress, whose environment and model must work.
_OF_RUN = ("installation", "redis", "clocks", "run")
_OF_ENDED = ("installation", "run")
_OF_CONFIG = ("installation", "redis", "clocks", "environment", "model")


class Examination:
    """Examines a subject, section by section; later sections depend on what earlier ones found.

    Args:
        only: sections; empty: all that the subject has.
        is_quick: whether slow checks are skipped.

    Raises:
        ConfigError: a section is unknown, or the subject does not have it.
    """

    def __init__(self, subject: Subject, only: Sequence[str] = (), *, is_quick: bool = False) -> None:
        self._subject = subject
        self._is_quick = is_quick
        self._away: set[str] = set()
        self._found: set[str] = set()  # faults
        self.sections = _chosen(subject, only)

    def run(self, on_section: Callable[[str], object] | None = None) -> Iterator[Finding]:
        """Run all checks, and yield each finding at once; `on_section` gets the name of each section before it."""
        for name in self.sections:
            if on_section is not None:
                on_section(name)
            for finding in self._section(name):
                self._found.add(finding.fault)
                yield finding.in_section(name)

    def _section(self, name: str) -> Iterator[Finding]:
        if name in ("environment", "model"):
            yield from self._try(name)
            return
        checks = {"installation": self._installation, "redis": self._redis, "clocks": self._clocks, "run": self._run}
        with ExitStack() as stack:
            for check in checks[name](stack):
                yield from run_check(check)

    # -- sections ----------------------------------------------------------------------------------------------------

    def _installation(self, stack: ExitStack) -> Iterator[Check]:
        from surreal.plugins.doctor import machine

        config, cores = self._subject.config, count_cores()
        yield Check("versions of packages", machine.packages)
        yield Check("torch and its GPUs", machine.cuda, 60.0)
        yield Check("a compiler", machine.compiler)
        yield Check("threads", partial(machine.threads, cores=cores))
        if config is not None:
            yield Check("extras", partial(machine.extras, config))
        if self._subject.run_address is None:
            yield Check("starting a redis-server", machine.redis_program, 30.0)
        for folder in machine.folders(config, self._subject.folder):
            yield Check(f"the disk of {folder}", partial(machine.disk, folder))
        yield Check("open files", partial(machine.open_files, config))
        yield Check("shared memory", machine.shared_memory)
        if config is not None and self._subject.run is None:
            yield Check("memory", partial(machine.memory, config))
            yield Check("cores", partial(machine.crowd, config, number_of_cores=cores))

    def _redis(self, stack: ExitStack) -> Iterator[Check]:
        from surreal.plugins.doctor import server

        if not self._subject.addresses:
            yield Check("servers", lambda: [ok("none is named, so a run starts its own")])
        for address, client in self._clients(stack):
            yield Check(f"Redis at {client.address}", partial(self._reach, address, client))
            if address not in self._away:
                yield Check("memory of Redis", partial(server.memory, client, self._replay_bytes(address)))
                yield Check("persistence of Redis", partial(server.persistence, client))
                yield Check("limits of Redis", partial(server.limits, client))
                yield Check("rights at Redis", partial(server.rights, client))
                yield Check("latency of Redis", partial(server.latency, client, tries=10 if self._is_quick else 50))

    def _clocks(self, stack: ExitStack) -> Iterator[Check]:
        from surreal.plugins.doctor.server import clock_of

        if not self._subject.addresses:
            yield Check("clocks", lambda: [ok("all processes of a run are on this machine")])
        for address, client in self._clients(stack):
            if address not in self._away:
                yield Check("clocks", partial(clock_of, client))
        looks = list(self._look(stack))
        if looks:
            yield Check("clocks of processes", lambda: clocks(looks[0]))

    def _run(self, stack: ExitStack) -> Iterator[Check]:
        from surreal.plugins.doctor import run

        folder, config = self._subject.folder, self._subject.config
        if self._subject.has_ended and config is not None:
            yield Check("the end of the run", partial(run.ending, folder))
            yield Check("returns", partial(run.scores, folder, config))
            yield Check("logs", partial(run.logs, folder))
            return
        looks: list[Look] = []

        def begin() -> Iterator[Finding]:
            looks.extend(self._look(stack))
            return iter(())

        yield Check("looking at the run", begin, 30.0)
        for look in looks:
            yield Check("processes", partial(run.alive, look))
            yield Check("errors", partial(run.logged, look))
            yield Check("waits", partial(run.waiting, look))
            yield Check("parameters", partial(run.parameters, look))
            yield Check("samples per insert", partial(usage, look))
            yield Check("size of the replay", partial(size, look))
            yield Check("memory of Redis", partial(self._foresee, look, stack))
            yield Check("counters", partial(counts, look))
        if config is not None and (folder / "eval" / "scores.jsonl").exists():
            yield Check("returns", partial(run.scores, folder, config, is_over=False))

    def _try(self, name: str) -> Iterator[Finding]:
        config = self._subject.config
        if config is None:
            return
        if name == "environment" and config.env.action_space is not None:
            yield ok("environments are elsewhere: they connect to an RLX server")
            return
        if "env-not-made" in self._found:
            yield fault("check-not-done", "the model was not tried, because there is no environment")
            return
        options = ["--quick"] if self._is_quick else []
        if name == "model" and (maxmemory := self._maxmemory(config)):
            options += ["--maxmemory", str(maxmemory)]
        with tempfile.TemporaryDirectory(prefix="surreal-doctor-") as folder:
            source, overrides = self._subject.source, self._subject.overrides
            if source is None:  # of a run, whose configuration is in Redis
                path = Path(folder) / "app.yaml"
                path.write_text(to_yaml(config), encoding="utf-8")
                source, overrides = str(path), ()
            yield from run_apart("surreal.plugins.doctor.apart", [name, *options, "--", source, *overrides])

    # -- what they share ---------------------------------------------------------------------------------------------

    def _clients(self, stack: ExitStack) -> Iterator[tuple[str, RedisClient]]:
        for address in self._subject.addresses:
            yield address, stack.enter_context(self._subject.client(address))

    def _reach(self, address: str, client: RedisClient) -> Iterator[Finding]:
        from surreal.plugins.doctor.server import reachable

        for finding in reachable(client):
            if finding.fault == "redis-away":
                self._away.add(address)
            yield finding

    def _look(self, stack: ExitStack) -> Iterator[Look]:
        subject, address = self._subject, self._subject.run_address
        if subject.run is not None and subject.config is not None and address not in (None, *self._away):
            yield look_at(stack.enter_context(subject.client(str(address))), subject.config)

    def _foresee(self, look: Look, stack: ExitStack) -> Iterator[Finding]:
        client = stack.enter_context(self._subject.client(str(self._subject.run_address)))
        info = client.redis.info("memory")
        yield from memory(look, used_bytes=int(info["used_memory"]), maxmemory_bytes=int(info["maxmemory"]))

    def _replay_bytes(self, address: str) -> int | None:
        """Return the size of the experience that a server must hold; None if it is unknown."""
        config = self._subject.config
        if config is None or config.has_parameter_servers:
            return None
        places = [each or self._subject.run_address for each in config.replay_addresses]
        return config.replay.max_bytes // len(places) if address in places else None

    def _maxmemory(self, config: Config) -> int | None:
        """Return the maximum memory of the parameters' server; None if it is unknown."""
        address = config.redis.parameter_address or self._subject.run_address
        if address is None:
            return config.own_redis_bytes
        if address in self._away:
            return None
        with self._subject.client(address) as client:
            info = client.attempt(lambda: client.redis.info("memory"), what="ask for its memory")
            return int(info["maxmemory"]) if info else None


def _chosen(subject: Subject, only: Sequence[str]) -> tuple[str, ...]:
    possible = [name for name in SECTIONS if subject.config is not None or name in _OF_RUN[:3]]
    if subject.run is None and not subject.has_ended and "run" in possible:
        possible.remove("run")
    for name in only:
        if name not in SECTIONS:
            raise ConfigError(f"--only is {name!r}; it must be one of {', '.join(SECTIONS)}", key="--only")
        if name not in possible:
            what = "a run" if name == "run" else "a preset, a file or a run"
            raise ConfigError(f"--only {name} needs {what}: surreal doctor NAME --only {name}", key="--only")
    default = _OF_ENDED if subject.has_ended else _OF_CONFIG if subject.run is None else _OF_RUN
    return tuple(name for name in possible if (name in only if only else name in default))
