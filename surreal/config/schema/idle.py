"""Settings that are given although nothing would act on them."""

from __future__ import annotations

from collections.abc import Iterator

from surreal.config.schema.fields import Section
from surreal.config.schema.root import Config

#: What only agents that compute gradients, and parameter servers, act on.
_OF_GRADIENTS = (
    *("learner.combine_gradients", "learner.num_gradients", "learner.dc_lambda", "learner.dc_history"),
    *("learner.gradients_dtype", "learner.gradients_max_bytes", "learner.gradients_max_lag"),
    *("learner.gradients_timeout_s", "agent.per_process", "parameter_server.servers"),
)


def idle_settings(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the settings that nothing would act on, so that none is ignored silently, as `conflicts` does.

    A setting counts as given if its value is not its default. It acts if it acts in any process, also in one that is
    started on another machine (`surreal eval`, `surreal rlx-server`).
    """
    for found in (_in_replays, _in_environments, _in_agents, _in_learners, _in_rlx, _elsewhere):
        for key, why in found(config):
            section, name = key.split(".")
            settings: Section = getattr(config, section)
            value = getattr(settings, name)
            if value != type(settings).model_fields[name].default:
                is_text = key == "environment.run"
                number = f"{value:g}" if isinstance(value, float) else value
                shown = repr(value) if is_text else str(value).lower() if isinstance(value, bool) else number
                yield key, f"is {shown}, but {why}"


def _in_replays(config: Config) -> Iterator[tuple[str, str]]:
    """Yield, like the functions below, settings that would be idle if they are given, and why."""
    replay = config.replay
    if replay.observations not in (None, "auto"):
        why = f"replay.observations is {replay.observations}, and only auto asks for it"
        yield "replay.mirror_max_bytes", f"{why}; leave mirror_max_bytes out, or set observations to auto"
    if replay.samples_per_insert is None:
        why = "replay.samples_per_insert is not set; set it, or leave the tolerance out"
        yield "replay.samples_per_insert_tolerance", why
    if config.sender.on_full == config.rlx.on_full == "drop":
        why = "sender.on_full and rlx.on_full are drop: no agent waits for room"
        yield "sender.wait_timeout_s", f"{why}; leave wait_timeout_s out, or set one of them to wait"


def _in_environments(config: Config) -> Iterator[tuple[str, str]]:
    env = config.env
    if env.pool not in ("subproc", "envpool"):
        yield "env.num_workers", f"env.pool is {env.pool}; only subproc and envpool have workers"
    if not env.is_game:
        yield "env.player_id", f"env.id, {env.id}, is not a game of several players; leave it out"
    if env.rate_hz is None:
        yield "env.safe_action", "env.rate_hz is not set: no action is late; set it, or leave safe_action out"
        yield "env.realtime", "env.rate_hz is not set, so agents keep no time; set it, or leave realtime out"
    if not config.agent.count and config.rlx.servers:
        why = "agent.count is 0, and clients of RLX servers keep their own time: AgentProxy(rate_hz=...)"
        yield "env.rate_hz", f"{why}; leave it out"


def _in_agents(config: Config) -> Iterator[tuple[str, str]]:
    if config.env.is_vector:
        why = f"env.pool is {config.env.pool}, whose environments draw in no window"
        yield "agent.show_ui", f"{why}; use local or subproc"
    if config.has_parameter_servers:
        why = "learner.gradients is agents: an agent acts where it learns"
        yield "agent.device", f"{why}; set device, and leave agent.device out"
    if config.agent.round_steps is None:
        why = "agent.round_steps is not set: agents never wait for a round"
        yield "agent.round_timeout_s", f"{why}; set it, or leave round_timeout_s out"
    if not config.agent.count and config.rlx.servers and config.rlx.on_full == "drop":
        why = "agent.count is 0, and RLX servers with rlx.on_full: drop never wait"
        yield "agent.round_steps", f"{why}; set on_full to wait, or leave round_steps out"


def _in_learners(config: Config) -> Iterator[tuple[str, str]]:
    if not config.has_parameter_servers:
        why = "learner.gradients is learner: the learner computes them, and steps; set gradients to agents, or leave"
        for key in _OF_GRADIENTS:
            yield key, f"{why} {key.partition('.')[2]} out"
    way = config.learner.combine_gradients
    for name, needed in (("num_gradients", "avg"), ("dc_lambda", "dc"), ("dc_history", "dc")):
        if way != needed:
            why = f"learner.combine_gradients is {way}; set that to {needed}, or leave {name} out"
            yield f"learner.{name}", why


def _in_rlx(config: Config) -> Iterator[tuple[str, str]]:
    if not config.rlx.servers:
        yield "rlx.clients", "rlx.servers is 0: no server would answer them; set it to 1"
        if config.environment.count:
            yield "environment.run", "rlx.servers is 0: no server would answer it; set that to 1"
    if not config.rlx.clients:
        why = "rlx.clients is 0: the run starts none that would have environments"
        yield "rlx.client_envs", f"{why}; set clients, or client_envs to 1"
    if config.env.observation_space == "raw":
        why = "env.observation_space is raw: states reach the agent as they came; leave"
        for name in ("largest_state", "outside_bounds"):
            yield f"rlx.{name}", f"{why} {name} out, or write the space down"


def _elsewhere(config: Config) -> Iterator[tuple[str, str]]:
    if not config.eval.enabled:
        yield "run.stop_at_return", "eval.enabled is false: nothing would measure the return"
        yield "eval.record_video_every", "eval.enabled is false: nothing would record"
    # Removing the goal of a preset does not require removing the settings that belong to the goal.
    has_lost_its_goal = config.run.stop_at_return is None and "stop_at_return" not in config.run.model_fields_set
    if config.eval.confirm_episodes and has_lost_its_goal:
        yield "eval.confirm_episodes", "run.stop_at_return is not set: nothing is to be confirmed"
    if config.self_play.enabled and config.self_play.sampling != "pfsp":
        yield "self_play.pfsp_exponent", f"self_play.sampling is {config.self_play.sampling}; leave it out"
    if config.redis.address:
        why = "redis.address (or --redis) names a server that this run does not start; set"
        yield "redis.appendonly", f"{why} appendonly in that server, or leave the address out"
        yield "redis.maxmemory", f"{why} maxmemory in that server, or leave it out here"
    if not config.self_play.enabled:
        for name in type(config.self_play).model_fields:
            if name != "enabled":
                yield f"self_play.{name}", "self_play.enabled is false; set it to true"
