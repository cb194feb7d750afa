"""Targets of disturbances: alive, on this machine, of an allowed role, and never the death that would end the run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.plugins.chaos import plan as module
from surreal.plugins.chaos.audit import ProcessBook, judge_keys
from surreal.plugins.chaos.command import only_possible
from surreal.plugins.chaos.disturbances import processes
from surreal.plugins.chaos.disturbances.failover import Failover
from surreal.plugins.chaos.disturbances.processes import Kill, Kind, NotDoneError, Pause, Starve
from surreal.plugins.chaos.disturbances.servers import ClockOrDisk, Cut, Flush, Full, Restart, Shrink
from surreal.plugins.chaos.observing import Life, Standing
from surreal.plugins.chaos.plan import ChaosOptions, Chooser, Planned
from surreal.plugins.chaos.subject import Keeps, Server, Subject

MIB = 1 << 20
ALL = frozenset({"agent", "learner", "eval"})


class FakeClient:
    """A connection to a Redis of a size, which notes what is executed."""

    def __init__(self, address: str = "redis://cache:6379", maxmemory: int = 64 * MIB) -> None:
        self.address, self.run, self.is_cluster = address, "x", False
        self.executed: list[tuple[object, ...]] = []
        self.redis = SimpleNamespace(info=lambda section: {"maxmemory": maxmemory})

    def execute(self, *command: object) -> int:
        self.executed.append(command)
        return 0


def life(name: str, **changes: Any) -> Life:
    return Life(f"{name}#1", name, name, 7, True, True, 5.0, 1, 0, 0, 0)._replace(**changes)


def server(client: Any = None, **changes: Any) -> Server:
    given = {"keeps": Keeps.ALL, "kill": lambda: 7, "start": lambda: None, "is_exclusive": True}
    return Server(client or FakeClient(), **{**given, **changes})


class Watched:
    """The audit of a run with these processes."""

    def __init__(self, *lives: Life) -> None:
        self.standing = Standing(1, 1, lives)
        self.noted: list[object] = []
        self.expected: list[str] = []
        self.processes = SimpleNamespace(note=self.noted.append)

    def expect_emptying(self, client: object) -> None:
        self.expected.append("emptying")

    def expect_rollback(self, client: object) -> None:
        self.expected.append("rollback")

    def expect_failover(self, client: object, replica: object) -> None:
        self.expected.append("failover")

    def look_at(self, client: object, and_then: object = None) -> None:
        self.expected.append("look")


def chooser_of(watched: Watched, servers: Iterable[Server] = (), **options: Any) -> Chooser:
    config = load_config("cartpole-dqn", ["run.restart_limit=2"])
    subject: Any = SimpleNamespace(config=config, servers=list(servers), machine=SimpleNamespace())
    given = ChaosOptions(**{"kinds": (), "kill_roles": ALL, "pause_roles": ALL, **options})
    return Chooser(subject, given, SimpleNamespace(), watched)  # type: ignore[arg-type]


def planned(kind: Kind, role: float = 0.0, member: float = 0.0) -> Planned:
    return Planned(0.0, kind, 1.0, role, member)


def choose(chooser: Chooser, kind: Kind, *hit: str, role: float = 0.0, is_redis_hit: bool = False) -> Any:
    found = chooser.choose(planned(kind, role), set(hit), is_redis_hit=is_redis_hit)
    return None if found is None else found[0]


@pytest.fixture(autouse=True)
def found_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_process", lambda life: f"process of {life.name}")


def test_each_role_is_as_likely_as_the_others() -> None:
    lives = [life(f"agent-{number}") for number in range(9)]
    chooser = chooser_of(Watched(life("learner"), *lives))
    targets = [choose(chooser, Kind.PAUSE, role=role).target for role in (0.0, 0.4, 0.6, 0.9)]
    assert targets == ["agent-0", "agent-0", "learner", "learner"]


@pytest.mark.parametrize(
    "lives",
    [
        [],
        [life("agent-0", is_alive=False)],
        [life("agent-0", is_here=False)],
        [life("launcher")],
        [life("rlx-server-0")],
        [life("learner")],  # it is hit already
    ],
)
def test_what_is_dead_elsewhere_unwanted_or_hit_already_is_left_alone(lives: list[Life]) -> None:
    assert choose(chooser_of(Watched(*lives)), Kind.KILL, "learner") is None


def test_a_kill_is_noted_with_all_that_must_end_with_it() -> None:
    watched = Watched(life("agent-0"))
    disturbance, killed = chooser_of(watched).choose(planned(Kind.KILL), set(), is_redis_hit=False) or (None, "")
    assert isinstance(disturbance, Kill)
    assert (killed, watched.noted) == ("agent-0#1", ["process of agent-0"])


def test_a_process_is_not_killed_as_often_as_would_end_the_run() -> None:
    chooser = chooser_of(Watched(life("agent-0")))
    kills = [choose(chooser, Kind.KILL) for _ in range(4)]
    assert [each is not None for each in kills] == [True, True, False, False]
    assert isinstance(choose(chooser, Kind.PAUSE), Pause)


def test_all_processes_but_the_launcher_get_no_further_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, list[tuple[int, int]]] = {}

    class Limited(NamedTuple):
        name: str

        def rlimit(self, kind: int, new: tuple[int, int] | None = None) -> tuple[int, int]:
            limits.setdefault(self.name, []).extend([new] if new else [])
            return (-1, 500)

    monkeypatch.setattr(processes, "find_process", lambda life: Limited(life.name))
    starve = choose(chooser_of(Watched(life("agent-0"), life("launcher"), life("learner"))), Kind.MEMORY)
    starve.begin()
    assert (limits, starve.detail) == ({"agent-0": [(1, 500)], "learner": [(1, 500)]}, "2 processes")
    starve.end()
    assert limits == {"agent-0": [(1, 500), (-1, 500)], "learner": [(1, 500), (-1, 500)]}


def test_a_process_that_ends_meanwhile_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(life: Life) -> object:
        raise NotDoneError("it is gone")

    monkeypatch.setattr(module, "find_process", find)
    assert choose(chooser_of(Watched(life("agent-0"))), Kind.KILL) is None


@pytest.mark.parametrize(
    ("kind", "cls"),
    [
        (Kind.CUT, Cut),
        (Kind.FLUSH, Flush),
        (Kind.FULL, Full),
        (Kind.RESTART, Restart),
        (Kind.SHRINK, Shrink),
        (Kind.FAILOVER, Failover),
        (Kind.CLOCK, ClockOrDisk),
        (Kind.DISK, ClockOrDisk),
        (Kind.MEMORY, Starve),
    ],
)
def test_each_way_to_disturb_redis_or_the_machine_has_its_disturbance(kind: Kind, cls: type) -> None:
    chooser = chooser_of(Watched(), [server(is_own=True, replicas=SimpleNamespace())])
    assert isinstance(choose(chooser, kind), cls)
    assert choose(chooser, kind, is_redis_hit=True) is None


def test_a_server_is_not_restarted_as_often_as_would_end_the_run() -> None:
    chooser = chooser_of(Watched(), [server()])
    assert [choose(chooser, Kind.RESTART) is None for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("keeps", "expected", "writes"),
    [
        (Keeps.ALL, [], False),
        (Keeps.NEARLY_ALL, ["rollback"], False),
        (Keeps.NOTHING, ["emptying", "look"], True),
    ],
)
def test_the_audit_knows_before_what_a_restart_may_lose(keeps: Keeps, expected: list[str], writes: bool) -> None:
    watched, client = Watched(), FakeClient()
    choose(chooser_of(watched, [server(client, keeps=keeps)]), Kind.RESTART).begin()
    assert watched.expected == expected
    assert bool(client.executed) == writes  # writes wait between the last look and the death


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"is_exclusive": False}, Kind.RESTART, "other runs use"),
        ({"is_exclusive": False}, Kind.FULL, "other runs use"),
        ({"kill": None}, Kind.RESTART, "no process would start"),
        ({"client": FakeClient(maxmemory=0)}, Kind.FULL, "has no maxmemory"),
        ({"client": FakeClient(maxmemory=8 << 30)}, Kind.FULL, "is too much"),
        ({"client": FakeClient("unix:///tmp/a"), "is_exclusive": False}, Kind.CUT, "cannot be told apart"),
        ({}, Kind.SHRINK, "was not started by `surreal chaos`"),
        ({"is_own": True}, Kind.SHRINK, ""),
        ({"is_own": True}, Kind.FAILOVER, "was not started by"),
        ({"replicas": SimpleNamespace()}, Kind.FAILOVER, ""),
        ({}, Kind.RESTART, ""),
        ({}, Kind.FULL, ""),
        ({"is_exclusive": False}, Kind.CUT, ""),
        ({"is_exclusive": False}, Kind.FLUSH, ""),
    ],
)
def test_a_server_refuses_what_would_harm_others(changes: dict[str, Any], kind: Kind, reason: str) -> None:
    refusal = server(**changes).refusal(kind)
    assert reason in refusal
    assert bool(refusal) == bool(reason)


def subject_of(*servers: Server, can_kill: bool = True) -> Subject:
    given: Any = SimpleNamespace()
    return Subject("run x", given, None, given, given, given, servers, is_new=False, can_kill=can_kill)


def test_what_is_impossible_is_left_out_with_a_sentence() -> None:
    lines: list[str] = []
    options = ChaosOptions((Kind.KILL, Kind.PAUSE, Kind.RESTART), is_default=True)
    possible = only_possible(subject_of(server(kill=None), can_kill=False), options, lines.append)
    assert possible.kinds == (Kind.PAUSE,)
    assert [line.partition(":")[0] for line in lines] == ["without kill", "without restart"]


def test_the_machine_of_a_run_in_progress_is_left_alone() -> None:
    with pytest.raises(
        ConfigError, match="run x cannot be disturbed by clock: only the clock, the disk and the memory of a run that"
    ):
        only_possible(subject_of(server()), ChaosOptions((Kind.CLOCK,)), print)


def test_a_failover_is_preceded_by_a_last_look_without_writes() -> None:
    watched, client, calls = Watched(), FakeClient(), list[str]()
    replicas = SimpleNamespace(
        detach=lambda: calls.append("detach"), switch=lambda: calls.append("switch"), replica=nullcontext, pid=7
    )
    failover = choose(chooser_of(watched, [server(client, replicas=replicas)]), Kind.FAILOVER)
    failover.begin()
    assert (calls, watched.expected) == (["detach"], [])
    failover.end()
    failover.end()
    assert (calls, watched.expected) == (["detach", "switch"], ["look", "failover"])
    assert client.executed == [("CLIENT", "PAUSE", 2000, "WRITE")]


def test_what_was_asked_for_by_name_and_is_impossible_is_an_error() -> None:
    subject = subject_of(server(kill=None))
    with pytest.raises(ConfigError, match="run x cannot be disturbed by restart: no process would start"):
        only_possible(subject, ChaosOptions((Kind.RESTART,)), print)


# -- what is left behind --------------------------------------------------------------------------------------------


class FakeProcess:
    """A process that runs as long as it is to."""

    def __init__(self, pid: int, *, runs: bool) -> None:
        self.pid, self._runs = pid, runs

    def children(self, recursive: bool) -> list[FakeProcess]:
        return []

    def create_time(self) -> float:
        return 1.0

    def is_running(self) -> bool:
        return self._runs

    def status(self) -> str:
        return "running"

    def cmdline(self) -> list[str]:
        return ["worker", str(self.pid)]


def test_processes_that_still_run_are_named_unless_they_may() -> None:
    book = ProcessBook()
    for process in (FakeProcess(1, runs=False), FakeProcess(2, runs=True), FakeProcess(3, runs=True)):
        book.note(process)  # type: ignore[arg-type]
    verdict = book.judge(spared=[3], within_s=0.0)
    assert verdict.violations == ("process 2 still runs: worker 2",)
    assert verdict.evidence == "3 processes were seen, 1 of them have ended, 1 continue with the run"
    assert book.judge(spared=[2, 3], within_s=0.0).holds


@pytest.mark.parametrize(
    ("keys", "is_listed", "violations"),
    [
        ([], False, ()),
        ([b"surreal:x:claims"], False, ("surreal:x:claims is left",)),
        ([], True, ("surreal:runs at redis://cache:6379 lists the run",)),
    ],
)
def test_keys_of_a_run_that_has_ended_are_named(
    keys: list[bytes], is_listed: bool, violations: tuple[str, ...]
) -> None:
    class Scanned(FakeClient):
        def scan(self, pattern: str) -> list[bytes]:
            return keys if pattern.endswith("*") else []

        def directory(self) -> Any:
            return self

        def __enter__(self) -> Any:
            return SimpleNamespace(hexists=lambda key, run: is_listed)

        def __exit__(self, *_: object) -> None:
            return None

    verdict = judge_keys([Scanned()])  # type: ignore[list-item]
    assert set(verdict.violations) == set(violations)
