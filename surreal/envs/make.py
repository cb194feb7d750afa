"""Makes gymnasium environments by id, with one clear sentence when that is not possible."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
from gymnasium import error as gym_error

from surreal.base.errors import EnvError
from surreal.envs.atari.preprocessing import is_atari
from surreal.envs.atari.vector import make_atari_vector
from surreal.envs.ids import find_env, missing_package, nearest_env_id
from surreal.envs.wrappers.named import WrapperSpec, apply_wrappers, select_wrappers
from surreal.envs.wrappers.observations import arrays_only
from surreal.envs.wrappers.steps import RawEpisodeMonitor


def make_env(
    env_id: str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperSpec] = (),
    frame_stack: int = 1,
    training: bool = True,
    seed: int | None = None,
    render_mode: str | None = None,
) -> gymnasium.Env[Any, Any]:
    """Make one environment; raises `EnvError` if it or a wrapper does not exist, or cannot be made.

    Args:
        env_id: see `surreal.envs.ids`.
        kwargs: arguments of the environment's constructor, and `max_episode_steps`.
        wrappers: see `surreal.envs.wrappers.named`. The raw return of episodes is counted below the first one that is
            for training only, as evaluation would count it.
        frame_stack: observations of a stack, >= 1; if more than one, observations are [frame_stack, ...], oldest first,
            and an episode begins with its first observation repeated.
        training: False leaves out the wrappers that are for training only.
        seed: resets the environment with it once; pools and `Env.reset` seed by themselves.
        render_mode: "human" to watch, "rgb_array" to record.
    """
    options = dict(kwargs or {})
    if render_mode is not None:
        options["render_mode"] = render_mode
    if is_atari(env_id) and any(spec.name == "atari" for spec in wrappers):
        # The wrapper skips frames and reads the screen: the cheapest observation will do below it.
        options = {"frameskip": 1, "obs_type": "ram", **options}
    # The pools check what matters; gymnasium's checker would cost a call at every step.
    options.setdefault("disable_env_checker", True)
    with _explained(env_id, options):
        env: gymnasium.Env[Any, Any] = gymnasium.make(find_env(env_id), **options)
    if wrappers:
        number = next((i for i, spec in enumerate(wrappers) if spec.is_training_only), len(wrappers))
        env = RawEpisodeMonitor(apply_wrappers(env, wrappers[:number], training=training))
        env = apply_wrappers(env, wrappers[number:], training=training)
    env = arrays_only(env)
    if frame_stack != 1:
        try:
            env = gymnasium.wrappers.FrameStackObservation(env, frame_stack, padding_type="reset")
        except ValueError as error:
            raise EnvError(f"frame_stack is {frame_stack}; it must be >= 1") from error
    if seed is not None:
        env.reset(seed=seed)
    return env


def make_vector_env(
    env_id: str,
    num_envs: int,
    *,
    kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[WrapperSpec] = (),
    frame_stack: int = 1,
    training: bool = True,
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Make the vector environment that an environment's own package offers; raises `EnvError` if there is none.

    Args:
        env_id: the same as for `make_env`.
        num_envs: environments in it.
        kwargs: arguments of its constructor.
        wrappers: must be empty once those left out of evaluation are: wrappers stand around single environments. ALE's
            games take `atari`, which they must have, `life_loss`, and those that change rewards.
        frame_stack: the same as for `make_env`; only for ALE's games.
        training: the same as for `make_env`.
    """
    chosen, options = select_wrappers(wrappers, training=training), dict(kwargs or {})
    if is_atari(env_id):
        with _explained(env_id, options):
            env: gymnasium.vector.VectorEnv[Any, Any, Any] = make_atari_vector(
                {**find_env(env_id).kwargs, **options},
                num_envs,
                wrappers=[(spec.name, spec.args) for spec in chosen],
                frame_stack=frame_stack,
            )
        return env
    if frame_stack != 1:
        raise EnvError(f"the vector environment of {env_id} does not stack frames; use the local pool")
    if chosen:
        names = ", ".join(spec.name for spec in chosen)
        raise EnvError(f"a vector environment takes no wrappers, got {names}; use the local pool")
    with _explained(env_id, options):
        spec = find_env(env_id)
        if spec.vector_entry_point is None:
            raise EnvError(f"{env_id} has no vector environment; use the local pool")
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        env = gymnasium.make_vec(env_id, num_envs=num_envs, vectorization_mode=mode, **options)
    return env


def check_env_id(env_id: str) -> None:
    """Find an environment by its id, or its class, without making it; raises `EnvError` if there is none."""
    with _explained(env_id, {}):
        find_env(env_id)


def record_video(
    env: gymnasium.Env[Any, Any], folder: str, *, every: int = 1, name: str = "video"
) -> gymnasium.Env[Any, Any]:
    """Record episodes as mp4 files, the first one included; raises `EnvError` without moviepy or images.

    Args:
        env: made with render_mode "rgb_array".
        folder: the folder for the files, created if missing.
        every: episodes from one recording to the next, >= 1; higher writes fewer files.
        name: the files are `{name}-episode-{n}.mp4`.
    """
    if every < 1:
        raise ValueError(f"every is {every}; it must be >= 1")
    if importlib.util.find_spec("moviepy") is None:
        raise EnvError("recording videos needs moviepy, which is not installed; run: pip install moviepy")
    if env.render_mode not in ("rgb_array", "rgb_array_list"):
        raise EnvError(f"recording videos needs render_mode 'rgb_array', the environment has {env.render_mode!r}")
    with warnings.catch_warnings():
        # The folder of a run is there before its second video.
        warnings.filterwarnings("ignore", message=".*Overwriting existing videos.*")
        return gymnasium.wrappers.RecordVideo(env, folder, episode_trigger=lambda i: i % every == 0, name_prefix=name)


@contextmanager
def _explained(env_id: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Raise any error inside as an `EnvError` with one clear sentence."""
    try:
        yield
    except EnvError:
        raise
    except Exception as error:
        raise _explain(env_id, options, error) from error


def _explain(env_id: str, options: Mapping[str, Any], error: Exception) -> EnvError:
    if isinstance(error, gym_error.NamespaceNotFound) and (found := missing_package(env_id, "")) is not None:
        return found
    if isinstance(error, gym_error.UnregisteredEnv | gym_error.DeprecatedEnv):
        near = nearest_env_id(env_id)
        hint = (
            f"did you mean {near}?"
            if near
            else "see gymnasium.registry for the ids, or use `module:id` or `module:Class`"
        )
        return EnvError(f"environment {env_id!r} does not exist; {hint}")
    if isinstance(error, ImportError | gym_error.DependencyNotInstalled):
        return missing_package(env_id, error) or EnvError(f"environment {env_id} cannot be imported: {error}")
    shown = {key: value for key, value in options.items() if key != "disable_env_checker"}
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return EnvError(f"environment {env_id} cannot be made with {shown}: {reason}")
