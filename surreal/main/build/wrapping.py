"""The wrappers that a configuration lists: whose they are, where the environments are elsewhere."""

from __future__ import annotations

from surreal.config import Config
from surreal.envs import WrapperSpec
from surreal.errors import ConfigError, EnvError
from surreal.main.build.written_spaces import EnvSpaces
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.pool.wrapping import RemoteWrappers, check_remote


def wrapper_specs(config: Config) -> list[WrapperSpec]:
    """List all wrappers, the innermost first."""
    return [
        WrapperSpec(wrapper.name or wrapper.class_path or "", dict(wrapper.args), wrapper.training_only)
        for wrapper in config.env.wrappers
    ]


def client_specs(config: Config) -> list[WrapperSpec]:
    """List the wrappers that RLX clients apply, the innermost ones."""
    return wrapper_specs(config)[: _num_on_client(config)]


def remote_wrappers(config: Config, spaces: EnvSpaces, *, training: bool = True) -> RemoteWrappers | None:
    """Make the wrappers that an RLX server applies; None: there are none.

    Args:
        config: of the run.
        spaces: of the environments as clients know them.
        training: False leaves out the wrappers that are for training only.

    Raises:
        ConfigError: one of them cannot be applied by a server, or does not take these spaces.
    """
    specs = wrapper_specs(config)[_num_on_client(config) :]
    if not specs or spaces.observation is None:
        return None
    check_wrappers(config, training=training)
    try:
        limits = value_limits(config)
        return RemoteWrappers(specs, spaces.observation, spaces.action, training=training, limits=limits)
    except EnvError as error:
        raise _config_error(config, "env.wrappers", error) from error


def check_wrappers(config: Config, *, training: bool = True) -> None:
    """Check the wrappers that an RLX server applies, as far as that is possible before anything is made.

    Raises:
        ConfigError: one of them has to be at the environment itself, or does not exist.
    """
    for index, spec in enumerate(wrapper_specs(config)):
        if index >= _num_on_client(config) and (training or not spec.is_training_only):
            try:
                check_remote(spec)
            except EnvError as error:
                raise _config_error(config, f"env.wrappers.{index}", error) from error


def value_limits(config: Config) -> ValueLimits:
    """Give the limits on numbers that clients send."""
    rlx = config.rlx
    return ValueLimits(rlx.largest_state, rlx.largest_reward, keeps_bounds=rlx.outside_bounds == "refuse")


def _num_on_client(config: Config) -> int:
    return sum(wrapper.on_client for wrapper in config.env.wrappers)


def _config_error(config: Config, key: str, error: EnvError) -> ConfigError:
    source = config.source_of(key)
    return ConfigError(f"{key}: {error}{f' ({source})' if source else ''}", key=key, source=source)
