"""The ancestor's keys around an algorithm: environment, servers, checkpoints, metrics."""

from __future__ import annotations

from typing import Any

from surreal.plugins.apps.importing.draft import Draft, Rule, Table, gone, gone_unless, to
from surreal.rlx.client.transport import parse_address

_REDIS = "processes meet in Redis, which `surreal run` starts; redis.address names another one"
_PORT = "name the port with --set rlx.port=$PORT"
_PROFILE = "profile a process with py-spy; durations of updates and actions are among the metrics"
_COLLECTED = "logs and metrics of a run are in its folder below runs/, always"


def _bind(draft: Draft, _: str, value: Any) -> None:
    address = parse_address(str(value))
    draft.settings["rlx.host"] = "127.0.0.1" if address.host == "localhost" else address.host
    draft.take("rlx.port", address.port)


def _run(draft: Draft, key: str, value: Any) -> None:
    draft.take("environment.run", value)
    draft.left_out.append((key, "kept, but a program that imports relaax has to import from surreal.rlx instead"))


def _log_level(draft: Draft, _: str, value: Any) -> None:
    draft.take("log_level", str(value).lower())


def _store(draft: Draft, _: str, value: Any) -> None:
    stores = draft.settings.setdefault("checkpoint.stores", ["run"])
    draft.take("checkpoint.stores", [*stores, value])


def _s3(draft: Draft, key: str, value: Any) -> None:
    bucket, *path = value if isinstance(value, list) else str(value).split()
    _store(draft, key, "/".join(["s3:/", bucket, *path]))


def _directory(draft: Draft, key: str, value: Any) -> None:
    if value == "logs/checkpoints":
        draft.leave_out(key, "the default: checkpoints are in the run's folder below runs/")
    else:
        _store(draft, key, value)


def _of_all(section: str) -> dict[str, Rule]:
    return {
        f"{section}.log_level": _log_level,
        f"{section}.bind_by_env_var": gone(_PORT),
        f"{section}.profile_dir": gone(_PROFILE),
        f"{section}.short_log_messages": gone("messages on a console are short, those in files whole"),
    }


SERVERS: Table = {
    "version": gone_unless("1.1.0", "it is 1 now"),
    "name": lambda draft, _, value: setattr(draft, "name", str(value)),
    "environment.run": _run,
    "environment.max_episodes": to("environment.max_episodes"),
    "environment.infinite_run": to("environment.infinite_run"),
    **_of_all("rlx_server"),
    "rlx_server.bind": _bind,
    "rlx_server.timeout": to("rlx.timeout_s", by=float),
    "rlx_server.protocol": gone("a server hears by itself whether a client speaks TCP or WebSocket"),
    "rlx_server.parameter_server": gone(_REDIS),
    "rlx_server.metrics_server": gone(_REDIS),
    **_of_all("parameter_server"),
    "parameter_server.bind": gone(_REDIS),
    "parameter_server.metrics_server": gone(_REDIS),
    "parameter_server.metrics_dir": gone(_COLLECTED),
    "parameter_server.metrics_aws_s3": gone(f"{_COLLECTED}; copy that"),
    "parameter_server.checkpoint_dir": _directory,
    "parameter_server.checkpoint_aws_s3": _s3,
    "parameter_server.aws_keys": gone("credentials are AWS's own: its environment variables and files"),
    "parameter_server.checkpoint_time_interval": to("checkpoint.checkpoint_time_interval", by=float),
    "parameter_server.checkpoint_step_interval": gone(
        "it counts env steps; checkpoint.interval_updates counts updates, checkpoint_time_interval seconds"
    ),
    "parameter_server.checkpoints_to_keep": to("checkpoint.checkpoints_to_keep"),
    "parameter_server.best_checkpoints_to_keep": to("checkpoint.best_checkpoints_to_keep"),
    **_of_all("metrics_server"),
    "metrics_server.bind": gone(_REDIS),
    "metrics_server.metrics_dir": gone(_COLLECTED),
    "metrics_server.metrics": gone("all metrics are kept; TensorBoard's filter chooses among them"),
    "metrics_server.enable_unknown_metrics": gone("all metrics are kept"),
    "metrics_server.log_metrics_to_console": gone("`surreal run` shows the main ones, metrics.jsonl has all"),
    "wsproxy": gone("RLX servers speak WebSocket themselves, on the same port"),
}
