"""The group of a learner's ranks, and the processes of all ranks but the first."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta

import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from surreal.base.errors import ConfigError, RankError, StoppedError
from surreal.base.system.logs import WaitNotice
from surreal.learner.stepping.ranks import Ranks
from surreal.run.build.learning import check_ranks
from surreal.run.process.arguments import LOOPBACK, RankPlace
from surreal.run.process.ending import error_line
from surreal.run.process.interrupts import child_environment, signal_name
from surreal.run.process.role import RoleProcess

logger = logging.getLogger(__name__)

_CHILD_POLL_INTERVAL_S = 0.02
_TERMINATE_S = 5.0


class RankProcesses:
    """Starts them, each as its own Python; they end with this process, however it ends. From the main thread only."""

    def __init__(self, module: str, arguments: Sequence[str], count: int) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._count = count
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, port: int) -> None:
        for rank in range(1, self._count):
            place = RankPlace(rank, self._count, local_rank=rank)
            # In this process's session: Ctrl-C and the end of the session are for all of them.
            self._processes[rank] = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, env=child_environment(place.variables(port))
            )

    def first_ended(self, timeout_s: float = 0.0) -> tuple[int, int] | None:
        """Wait for a rank to end; return it with its exit code, -N if signal N ended it."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            for rank, process in self._processes.items():
                if (code := process.poll()) is not None:
                    return rank, code
            if time.monotonic() >= deadline_s or not self._processes:
                return None
            time.sleep(_CHILD_POLL_INTERVAL_S)

    def stop(self, timeout_s: float) -> None:
        """Wait for all ranks to end; a rank that takes longer gets SIGTERM, and then SIGKILL."""
        self._wait(timeout_s)
        for process in self._running():
            process.terminate()
        self._wait(_TERMINATE_S)
        for process in self._running():
            process.kill()
            process.wait()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in self._processes.values() if process.poll() is None]

    def _wait(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for process in self._running():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline_s - time.monotonic()))


_POLL_INTERVAL_S = 0.05
#: How long a rank that is gone may take to become an exit code, s.
_EXIT_CODE_S = 5.0
#: How long the other ranks may take to end after the last update, s.
_END_S = 20.0
_MEET = timedelta(seconds=60)


def join_ranks(process: RoleProcess, stack: ExitStack) -> RankGroup | None:
    """Join a learner's ranks, after rank 0 has started those that no other launcher started; None if it is alone.
    Raises `ConfigError` if this learner cannot be several ranks, `RankError` if one ended before all had met.
    """
    check_ranks(process.config)
    if process.config.learner.ranks == 1:
        return None
    if process.arguments.offline is not None:
        raise ConfigError("--offline fills the shards of one learner; set learner.ranks to 1", key="--offline")
    _choose_gpu(process)
    group = RankGroup(process)
    stack.callback(group.leave)
    group.meet()
    return group


class RankGroup:
    """The ranks, seen from one of them."""

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        self._count = process.config.learner.ranks
        self._children: RankProcesses | None = None
        self._is_broken = False
        self.ranks: Ranks

    def meet(self) -> None:
        """Wait until all ranks are there; see `join_ranks`."""
        process, place = self._process, self._process.arguments.place
        # Ranks that torchrun has started again find its store as those before them left it.
        prefix = f"surreal-learner-{0 if place is None else place.restarts}"
        store = PrefixStore(prefix, self._make_store())
        store.set(f"here-{process.rank}", "")
        notice = WaitNotice(logger, level=logging.INFO)
        while missing := [rank for rank in range(self._count) if not store.check([f"here-{rank}"])]:
            notice.tell("waiting for rank %s of the learner", ", ".join(map(str, missing)))
            process.turn()
            if self._children is not None and (ended := self._children.first_ended()):
                self._is_broken = True
                raise _ended_error(*ended)
            if process.stop.wait(_POLL_INTERVAL_S):
                self._is_broken = True
                raise StoppedError("stopped while waiting for the learner's ranks")
        notice.end()
        self.ranks = Ranks(store, process.rank, self._count)
        logger.info("rank %d of %d", process.rank, self._count)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Report this rank's failure to the others, and raise the error of the rank that failed first."""
        try:
            yield
        except RankError as error:
            self._is_broken = True
            if trouble := self.ranks.heard_trouble():
                raise RankError(trouble) from error
            if self._children is not None and (ended := self._children.first_ended(_EXIT_CODE_S)):
                raise _ended_error(*ended) from error
            raise
        except StoppedError:
            raise
        except Exception as error:
            self._is_broken = True
            self.ranks.tell_trouble(f"rank {self._process.rank} of the learner failed: {error_line(error)}")
            raise

    def leave(self) -> None:
        if hasattr(self, "ranks"):
            self.ranks.close()
        if self._children is not None:
            self._children.stop(0.0 if self._is_broken else _END_S)

    def _make_store(self) -> Store:
        if self._process.arguments.place is not None:
            found: Store = next(rendezvous("env://", timeout=_MEET))[0]
            return found
        server = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False, timeout=_MEET)
        self._children = RankProcesses(self._process.role.module, self._process.arguments.argv, self._count)
        self._children.start(server.port)
        return server


def _ended_error(rank: int, code: int) -> RankError:
    if code < 0:
        return RankError(f"rank {rank} of the learner was killed by {signal_name(-code)}", is_killed=True)
    return RankError(f"rank {rank} of the learner ended with exit code {code}")


def _choose_gpu(process: RoleProcess) -> None:
    if process.config.device == "cpu" or not torch.cuda.is_available():
        return
    local_rank = 0 if process.arguments.place is None else process.arguments.place.local_rank
    count = torch.cuda.device_count()
    if local_rank >= count:
        problem = f"rank {process.rank} of the learner needs its own GPU, and there are {count} here"
        raise ConfigError(f"{problem}; lower learner.ranks, or set device to cpu", key="learner.ranks")
    torch.cuda.set_device(local_rank)
