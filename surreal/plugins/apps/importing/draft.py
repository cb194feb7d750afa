"""The draft of a converted configuration, rules for keys, and the keys of environment, servers and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from surreal.rlx.client.transport import parse_address


class Draft:
    """The settings of Surreal so far.

    Args:
        name: name of the app.
        algorithm: RELAAX's name of the algorithm.
        given: section of the algorithm, with underscores in its keys.

    Attributes:
        settings: settings by dotted key, in the order of the file.
        left_out: keys of the file that were not converted, with the reasons.
        taken: number of converted keys.
        finishing: functions to call when all keys were read.
    """

    def __init__(self, name: str, algorithm: str, given: Mapping[str, Any]) -> None:
        self.name = name
        self.algorithm = algorithm
        self.given = given
        self.settings: dict[str, Any] = {}
        self.left_out: list[tuple[str, str]] = []
        self.taken = 0
        self.finishing: list[Callable[[], None]] = []

    def begin(self, **sections: Mapping[str, Any]) -> None:
        """Set defaults, which the file may override: settings by section, `args__NAME` for arguments."""
        for section, settings in sections.items():
            for name, value in settings.items():
                self.settings[f"{section}.{name.replace('__', '.')}"] = value

    def take(self, key: str, value: Any) -> None:
        """Set a setting from a key of the file."""
        self.settings[key] = value
        self.taken += 1

    def leave_out(self, key: str, reason: str) -> None:
        """Record the reason why a key is not converted."""
        self.left_out.append((key, reason))


#: Converts a key: takes the draft, the key in the file, and its value.
Rule = Callable[[Draft, str, Any], None]
Table = Mapping[str, Rule]


def to(*keys: str, by: Callable[[Any], Any] = lambda value: value) -> Rule:
    """Make the rule of a key that sets one or several settings."""

    def rule(draft: Draft, _: str, value: Any) -> None:
        for key in keys:
            draft.settings[key] = by(value)
        draft.taken += 1

    return rule


def gone(reason: str) -> Rule:
    """Make the rule of a key that no longer has a meaning."""
    return lambda draft, key, _: draft.leave_out(key, reason)


def gone_unless(default: Any, reason: str) -> Rule:
    """Make the rule of a key for which Surreal only supports the default."""

    def rule(draft: Draft, key: str, value: Any) -> None:
        if value == default or value is None:
            draft.taken += 1
        else:
            draft.leave_out(key, f"{value}: {reason}")

    return rule


def counted(draft: Draft, _: str, __: Any) -> None:
    """Count a key that the rule of another key reads."""
    draft.taken += 1


def number_or_none(value: Any) -> Any:
    """Read `false` as None, like RELAAX."""
    return None if value is False else value


def plain_keys(data: Any) -> Any:
    """Convert keys to Surreal's style: underscores for hyphens, without `relaax_` and the leading hyphens of 2017."""
    if isinstance(data, dict):
        return {_plain(str(key)): plain_keys(value) for key, value in data.items()}
    return [plain_keys(each) for each in data] if isinstance(data, list) else data


def _plain(key: str) -> str:
    return key.lstrip("-").replace("-", "_").removeprefix("relaax_")


_REDIS = "processes communicate through Redis, which `surreal run` starts; redis.address names another one"
_PORT = "name the port with --set rlx.port=$PORT"
_PROFILE = "profile a process with py-spy; durations of updates and actions are among the metrics"
_COLLECTED = "logs and metrics of a run are in its folder below runs/, always"


def _bind(draft: Draft, _: str, value: Any) -> None:
    address = parse_address(str(value))
    draft.settings["rlx.host"] = "127.0.0.1" if address.host == "localhost" else address.host
    draft.take("rlx.port", address.port)


def _run(draft: Draft, key: str, value: Any) -> None:
    draft.take("environment.run", value)
    draft.left_out.append((key, "kept, but a program that imports relaax must import from surreal.rlx instead"))


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
        f"{section}.short_log_messages": gone("messages on a console are short, those in files complete"),
    }


SERVERS: Table = {
    "version": gone_unless("1.1.0", "it is now 1"),
    "name": lambda draft, _, value: setattr(draft, "name", str(value)),
    "environment.run": _run,
    "environment.max_episodes": to("environment.max_episodes"),
    "environment.infinite_run": to("environment.infinite_run"),
    **_of_all("rlx_server"),
    "rlx_server.bind": _bind,
    "rlx_server.timeout": to("rlx.timeout_s", by=float),
    "rlx_server.protocol": gone("a server detects whether a client uses TCP or WebSocket"),
    "rlx_server.parameter_server": gone(_REDIS),
    "rlx_server.metrics_server": gone(_REDIS),
    **_of_all("parameter_server"),
    "parameter_server.bind": gone(_REDIS),
    "parameter_server.metrics_server": gone(_REDIS),
    "parameter_server.metrics_dir": gone(_COLLECTED),
    "parameter_server.metrics_aws_s3": gone(f"{_COLLECTED}; copy that"),
    "parameter_server.checkpoint_dir": _directory,
    "parameter_server.checkpoint_aws_s3": _s3,
    "parameter_server.aws_keys": gone("credentials come from the environment variables and files of AWS"),
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
