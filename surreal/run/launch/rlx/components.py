"""The components of `surreal run`, RELAAX's words for parts of an app.

    all                everything, the default
    servers            all but environment programs
    parameter-server   all but these and RLX servers: Redis, the learner, evaluation
    rlx-server         a server that joins the newest run
    metrics-server     brings the run's logs and metrics into its folder, as its learner does until it ends
    environment        environment programs that connect to where app.yaml says

The first three are a run, which the launcher starts; the others are companions of one, and any of them can be named
together. Imports nothing heavy: the command line knows the words.
"""

from __future__ import annotations

from collections.abc import Collection

from surreal.base.errors import ConfigError

ENVIRONMENTS, RLX_SERVERS = "environment", "rlx-server"
PARAMETER_SERVER, METRICS_SERVER = "parameter-server", "metrics-server"
#: Words that `surreal run` does not take for presets or files, and what they stand for.
COMPONENTS: dict[str, frozenset[str]] = {
    "all": frozenset({ENVIRONMENTS, RLX_SERVERS, PARAMETER_SERVER, METRICS_SERVER}),
    "servers": frozenset({RLX_SERVERS, PARAMETER_SERVER, METRICS_SERVER}),
    **{name: frozenset({name}) for name in (ENVIRONMENTS, RLX_SERVERS, PARAMETER_SERVER, METRICS_SERVER)},
}


def parts_of(words: Collection[str]) -> frozenset[str]:
    """What components ask for; of none, everything.

    Raises:
        ConfigError: one of them is no component any more.
    """
    if "wsproxy" in words:
        raise ConfigError("wsproxy is no component any more: an rlx-server speaks WebSocket itself", key="wsproxy")
    return frozenset().union(*(COMPONENTS[word] for word in words)) if words else COMPONENTS["all"]


def has_launcher(parts: Collection[str]) -> bool:
    """Whether parts of an app are a run of their own."""
    return PARAMETER_SERVER in parts


def launcher_overrides(parts: Collection[str]) -> list[str]:
    """Settings that leave out of a run what was not asked for."""
    left_out = {ENVIRONMENTS: "environment.n_environments=0", RLX_SERVERS: "rlx.servers=0"}
    return [setting for part, setting in left_out.items() if part not in parts]
