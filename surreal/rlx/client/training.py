"""`TrainingBase`: you write `episode`; options, connection, scores and reconnecting are here.

`RandomAgent` replaces a server in tests of such an environment.

    class Bandit(TrainingBase):
        def episode(self, number):
            action = self.agent.update(reward=None, state=[])
            reward = float(action == 2)
            self.agent.update(reward, state=[], terminal=True)
            return reward

    if __name__ == "__main__":
        sys.exit(not Bandit().run())

Options come from the constructor, otherwise from the command line, otherwise from `app.yaml`:

    constructor    command line          app.yaml
    address        --rlx-server H:P      relaax_rlx_server: {bind: H:P}, else rlx: {host: H, port: P}
    exploit        --exploit [True]      -
    show_ui        --show-ui [True]      -                                    SIGUSR1 turns it on and off
    max_episodes   --max-episodes N      environment: {max_episodes: N}       default 1
    infinite_run   --infinite-run        environment: {infinite_run: true}    default false
    -              --config PATH         default: app.yaml of the working folder, if it exists
    token          $SURREAL_RLX_TOKEN_FILE, $SURREAL_RLX_TOKEN

The file may be the configuration of the run, and have settings of your environment, which
`self.options.get("environment/steps", 100)` reads. Names may be written with hyphens, as in `relaax-rlx-server`.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from surreal.rlx.client.agent_proxy import AgentProxy
from surreal.rlx.client.connection import AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError, retrying
from surreal.rlx.client.options import TOKEN_VARIABLE, Options, find_token
from surreal.rlx.client.transport import DEFAULT_PORT
from surreal.rlx.protocol.codec import decode, encode

logger = logging.getLogger(__name__)

#: Servers that listen on all addresses of a machine are found on it.
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - they are compared with


class TrainingBase:
    """Plays episodes with an agent elsewhere.

    After a lost connection, it connects again and repeats the episode; a server may close a connection to balance the
    load. After any other failure, such as an error reply, `run` reports it and stops. SIGUSR1 turns `show_ui` on and
    off: `kill -USR1 PID`.

    Args:
        argv: the command line, whose unknown arguments are ignored; None: this process's.
        address: the server's address, in the forms that `AgentProxy` accepts.
        exploit: whether the agent acts greedily and does not learn.
        show_ui: whether the environment should show itself; it checks `self.show_ui` in every step.
        max_episodes: number of episodes.
        infinite_run: whether to continue after these.
        attempts: attempts to connect before it gives up, >= 1; ten take half a minute.
        token: the token that the server requires.
        stop: event that ends `run` before its next episode, and ends waits for a server.
        agent: your own proxy, instead of one for the address and the token.

    Raises:
        ConfigError: the file does not exist, or does not fit the table above.
    """

    #: Lost episodes in a row before `run` gives up: a server that never lets an episode end is broken.
    max_lost_episodes = 20
    #: File that is read, if it exists and the command line names none; None: no file.
    config_file: Path | None = Path("app.yaml")

    def __init__(
        self,
        argv: Sequence[str] | None = None,
        *,
        address: str | None = None,
        exploit: bool | None = None,
        show_ui: bool | None = None,
        max_episodes: int | None = None,
        infinite_run: bool | None = None,
        attempts: int = 10,
        token: str | None = None,
        stop: threading.Event | None = None,
        agent: AgentProxy | None = None,
    ) -> None:
        given = _parse(sys.argv[1:] if argv is None else argv)
        options = self.options = Options.read(given.config, self.config_file)  #: contents of the file
        for section in ("environment", "relaax_rlx_server", "rlx"):
            options.check_section(section)
        self.exploit = bool(_first(exploit, given.exploit, False))
        self.show_ui = bool(_first(show_ui, given.show_ui, False))
        self.max_episodes = int(_first(max_episodes, given.max_episodes, options.get("environment/max_episodes"), 1))
        self.infinite_run = bool(
            _first(infinite_run, given.infinite_run, options.get("environment/infinite_run"), False)
        )
        self.attempts = attempts
        self.failure: AgentProxyException | None = None  #: the reason why `run` stopped early
        self._stop = stop or threading.Event()
        self._rng = random.Random()
        where = str(_first(address, given.rlx_server, _address_in(options)))
        self.agent = agent or AgentProxy(where, token=token or find_token(None, f"${TOKEN_VARIABLE}"))

    def episode(self, number: int) -> float | None:
        """Play one episode with `self.agent`; an exception other than `AgentProxyException` ends `run`.

        Args:
            number: 0 for the first; the same again when the connection was lost in it.

        Returns:
            The episode's reward, or None to record none.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define episode(number)")

    def initialize_agent(self) -> None:
        """Connect and begin a session, with as many attempts as allowed."""
        retrying(self.attempts, self._begin, rng=self._rng, stop=self._stop)

    def record(self, reward: float) -> None:
        names = ("episode_reward", "game_score")
        self.agent.update_metrics([{"method": "scalar", "name": name, "y": float(reward), "x": None} for name in names])

    def run(self) -> bool:
        """Play all episodes; returns whether all were played, otherwise `failure` has the reason."""

        def toggle() -> None:
            self.show_ui = not self.show_ui

        with at_show_signal(toggle):
            self._run()
        return self.failure is None

    def _run(self) -> None:
        try:
            self.initialize_agent()
            number = lost = 0
            while (self.infinite_run or number < self.max_episodes) and not self._stop.is_set():
                try:
                    reward = self.episode(number)
                except AgentProxyConnectionError as error:
                    lost += 1
                    if lost >= self.max_lost_episodes:
                        raise
                    logger.info("episode %d is cut off: %s; connecting again", number, error)
                    self.initialize_agent()  # a run that ends takes its server away: that is nothing to warn of
                    logger.warning("episode %d was cut off and is repeated: %s", number, error)
                    continue
                number, lost = number + 1, 0
                if reward is not None:
                    self._record_surely(reward)
        except AgentProxyException as error:
            if not self._stop.is_set():
                logger.error("%s stops: %s", type(self).__name__, error)
                self.failure = error
        finally:
            self.agent.disconnect()

    def _begin(self) -> None:
        self.agent.connect(retry=1)
        self.agent.init(self.exploit)

    def _record_surely(self, reward: float) -> None:
        """The end of an episode is where a server drops connections: connect again, and record it then."""
        try:
            self.record(reward)
        except AgentProxyConnectionError as error:
            logger.info("connecting again after an episode: %s", error)
            self.initialize_agent()
            self.record(reward)


class RandomAgent(AgentProxy):
    """An agent without a server, for the tests of an environment: it acts at random, learns nothing, and counts.

        agent = RandomAgent(4)                         # actions 0 to 3
        assert Training([], agent=agent).run()
        assert agent.steps > 0

    It refuses what a server would refuse: states that the protocol cannot encode, rewards that are not numbers.

    Args:
        actions: number of actions, or a function that returns an action.
        seed: seed of the random actions.

    Attributes:
        steps: actions that led to something.
        episodes: episodes that ended with `terminal` or `truncated`.
        rewards: rewards of episodes that were reported with `update_metrics`.
    """

    def __init__(self, actions: int | Callable[[], Any], *, seed: int | None = None) -> None:
        super().__init__()
        draw = random.Random(seed)
        self._action = actions if callable(actions) else lambda: draw.randrange(actions)
        self._is_open = False
        self.steps = self.episodes = 0
        self.rewards: list[float] = []

    def _open(self) -> None:
        self._is_open = False

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        sent = decode(encode(request))
        command = sent["command"]
        if command == "update":
            return {"response": "action", "data": self._update(sent["reward"], bool(sent["terminal"]))}
        if command == "update_metrics":
            self.rewards += [record["y"] for record in sent["data"] if record["name"] == "episode_reward"]
        if command == "reset":
            self._is_open = False
        return {"response": "ready" if command == "init" else "done"}

    def _update(self, reward: Any, is_over: bool) -> Any:
        if reward is not None:
            if not np.isfinite(np.asarray(reward, np.float64)).all():
                raise AgentProxyReplyError(f"the reward is {reward}; it must be finite")
            if not self._is_open:
                raise AgentProxyReplyError("the first update of an episode has no reward: no action came before it")
            self.steps += 1
        self._is_open = not is_over
        self.episodes += is_over
        return None if is_over else self._action()


@contextmanager
def at_show_signal(toggle: Callable[[], None]) -> Iterator[None]:
    """Call something at each SIGUSR1, by which a person shows or hides an environment that is running.

    Inside a thread other than the main one, and where there is no such signal, it does nothing.
    """
    number = getattr(signal, "SIGUSR1", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(_: int, __: FrameType | None) -> None:
        toggle()

    before = signal.signal(number, note)
    try:
        yield
    finally:
        signal.signal(number, before)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    # Not Typer: a game needs nothing but NumPy and PyYAML for its client, and the options of the game are in argv too.
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--rlx-server", "--rlx-server-address")
    parser.add_argument("--max-episodes", type=int)
    for name in ("--exploit", "--show-ui", "--infinite-run"):
        parser.add_argument(name, type=_flag, nargs="?", const=True)
    return parser.parse_known_args(argv)[0]


def _flag(text: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"expected True or False, got {text!r}")
    return known[text.lower()]


def _address_in(options: Options) -> Any:
    """Return the server's address in a file: from the client's section, or else where the run's servers listen."""
    bind = options.get("relaax_rlx_server/bind")
    if bind is not None:
        return bind
    host = str(options.get("rlx/host", "localhost"))
    host = "localhost" if host in _ANY_ADDRESS else f"[{host}]" if ":" in host else host
    scheme = "rlx" if options.get("rlx/tls_cert") is None else "rlxs"
    return f"{scheme}://{host}:{options.get('rlx/port') or DEFAULT_PORT}"


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
