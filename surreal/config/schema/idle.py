"""Settings that are given although nothing would act on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from surreal.config.schema.fields import Section
from surreal.config.schema.root import Config


class _Idle(NamedTuple):
    """A setting that nothing would act on."""

    key: str  #: the setting; it counts as given if its value is not its default
    when: Callable[[Config], object]  #: whether nothing would act on it
    why: str  #: the rest of "KEY is VALUE, but ...", where `{c}` is the configuration


_SERVER = "redis.address (or --redis) names a server that this run does not start; set {name} in that server, or leave"
_AGENTS = (
    "learner.gradients is learner: the learner computes them, and steps; set gradients to agents, or leave {name} out"
)
_RAW = "env.observation_space is raw: states reach the agent as they came; leave {name} out, or write the space down"
_COMBINING = "learner.combine_gradients is {c.learner.combine_gradients}; set that to {way}, or leave {name} out"

#: Settings that act only under a condition. A setting acts if it acts in any process, also in one that is started on
#: another machine (`surreal eval`, `surreal rlx-server`).
_IDLE: tuple[_Idle, ...] = (
    _Idle(
        "replay.mirror_max_bytes",
        lambda c: c.replay.observations not in (None, "auto"),
        "replay.observations is {c.replay.observations}, and only auto asks for it; leave mirror_max_bytes out, or set "
        "observations to auto",
    ),
    _Idle(
        "replay.samples_per_insert_tolerance",
        lambda c: c.replay.samples_per_insert is None,
        "replay.samples_per_insert is not set; set it, or leave the tolerance out",
    ),
    _Idle(
        "sender.wait_timeout_s",
        lambda c: c.sender.on_full == c.rlx.on_full == "drop",
        "sender.on_full and rlx.on_full are drop: no agent waits for room; leave wait_timeout_s out, or set one of "
        "them to wait",
    ),
    _Idle(
        "env.num_workers",
        lambda c: c.env.pool not in ("subproc", "envpool"),
        "env.pool is {c.env.pool}; only subproc and envpool have workers",
    ),
    _Idle(
        "env.player_id",
        lambda c: not c.env.is_game,
        "env.id, {c.env.id}, is not a game of several players; leave it out",
    ),
    _Idle(
        "env.safe_action",
        lambda c: c.env.rate_hz is None,
        "env.rate_hz is not set: no action is late; set it, or leave safe_action out",
    ),
    _Idle(
        "env.realtime",
        lambda c: c.env.rate_hz is None,
        "env.rate_hz is not set, so agents keep no time; set it, or leave realtime out",
    ),
    _Idle(
        "env.rate_hz",
        lambda c: not c.agent.count and c.rlx.servers,
        "agent.count is 0, and clients of RLX servers keep their own time: AgentProxy(rate_hz=...); leave it out",
    ),
    _Idle(
        "agent.show_ui",
        lambda c: c.env.is_vector,
        "env.pool is {c.env.pool}, whose environments draw in no window; use local or subproc",
    ),
    _Idle(
        "agent.device",
        lambda c: c.has_parameter_servers,
        "learner.gradients is agents: an agent acts where it learns; set device, and leave agent.device out",
    ),
    _Idle(
        "agent.round_timeout_s",
        lambda c: c.agent.round_steps is None,
        "agent.round_steps is not set: agents never wait for a round; set it, or leave round_timeout_s out",
    ),
    _Idle(
        "agent.round_steps",
        lambda c: not c.agent.count and c.rlx.servers and c.rlx.on_full == "drop",
        "agent.count is 0, and RLX servers with rlx.on_full: drop never wait; set on_full to wait, or leave "
        "round_steps out",
    ),
    *(
        _Idle(key, lambda c: not c.has_parameter_servers, _AGENTS)
        for key in (
            *("learner.combine_gradients", "learner.num_gradients", "learner.dc_lambda", "learner.dc_history"),
            *("learner.gradients_dtype", "learner.gradients_max_bytes", "learner.gradients_max_lag"),
            *("learner.gradients_timeout_s", "agent.per_process", "parameter_server.servers"),
        )
    ),
    _Idle("learner.num_gradients", lambda c: c.learner.combine_gradients != "avg", _COMBINING.replace("{way}", "avg")),
    _Idle("learner.dc_lambda", lambda c: c.learner.combine_gradients != "dc", _COMBINING.replace("{way}", "dc")),
    _Idle("learner.dc_history", lambda c: c.learner.combine_gradients != "dc", _COMBINING.replace("{way}", "dc")),
    _Idle("rlx.clients", lambda c: not c.rlx.servers, "rlx.servers is 0: no server would answer them; set it to 1"),
    _Idle(
        "environment.run",
        lambda c: c.environment.count and not c.rlx.servers,
        "rlx.servers is 0: no server would answer it; set that to 1",
    ),
    _Idle(
        "rlx.client_envs",
        lambda c: not c.rlx.clients,
        "rlx.clients is 0: the run starts none that would have environments; set clients, or client_envs to 1",
    ),
    _Idle("rlx.largest_state", lambda c: c.env.observation_space == "raw", _RAW),
    _Idle("rlx.outside_bounds", lambda c: c.env.observation_space == "raw", _RAW),
    _Idle(
        "run.stop_at_return", lambda c: not c.eval.enabled, "eval.enabled is false: nothing would measure the return"
    ),
    _Idle(
        "eval.confirm_episodes",
        # Removing the goal of a preset does not require removing the settings that belong to the goal.
        lambda c: (
            c.eval.confirm_episodes and c.run.stop_at_return is None and "stop_at_return" not in c.run.model_fields_set
        ),
        "run.stop_at_return is not set: nothing is to be confirmed",
    ),
    _Idle("eval.record_video_every", lambda c: not c.eval.enabled, "eval.enabled is false: nothing would record"),
    _Idle(
        "self_play.pfsp_exponent",
        lambda c: c.self_play.enabled and c.self_play.sampling != "pfsp",
        "self_play.sampling is {c.self_play.sampling}; leave it out",
    ),
    _Idle("redis.appendonly", lambda c: c.redis.address, f"{_SERVER} the address out"),
    _Idle("redis.maxmemory", lambda c: c.redis.address, f"{_SERVER} it out here"),
)


def idle_settings(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that nothing would act on, so that none is ignored silently, as `conflicts` does."""
    games = [f"self_play.{name}" for name in type(config.self_play).model_fields if name != "enabled"]
    is_idle = "self_play.enabled is false; set it to true"
    for key, when, why in (*_IDLE, *(_Idle(key, lambda c: not c.self_play.enabled, is_idle) for key in games)):
        section, name = key.split(".")
        settings: Section = getattr(config, section)
        value = getattr(settings, name)
        if value != type(settings).model_fields[name].default and when(config):
            text = (
                str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else value
            )
            shown = repr(value) if key == "environment.run" else text
            yield key, f"is {shown}, but {why.format(c=config, name=name)}"
