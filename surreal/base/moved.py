"""Earlier import paths: files that users wrote for an earlier version continue to load.

`surreal/__init__.py` installs the finder. Apps with a copy of an algorithm, callbacks and configurations name modules
that have moved since; tests/integration/test_written_before.py lists what they name. A name that is renamed within a
module that stays where it is keeps an alias there.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import InspectLoader

#: Where modules are now -> their earlier paths, separated by blanks; each begins with `surreal.`.
_EARLIER = {
    "agent.exported": "agent.exported.agent agent.exported.file",
    "agent.forward": "agent.fitting",
    "agent.noise": "agent.exploring.noise agent.exploring.parameter_noise",
    "agent.policy_agent": "agent.exploring.random_start agent.sampling_agent",
    "agent.q_agent": "agent.exploring.epsilon_greedy agent.noisy_q_agent agent.random_actions",
    "agent.sampler": "agent.exploring.sampler",
    "agent.slots": "agent.returns",
    "base.checkpoint.store": "base.checkpoint.ranking",
    "base.errors": "errors",
    "base.pytorch": "utils.pytorch",
    "base.schedules": "schedules",
    "base.specs": "specs",
    "base.system.health": "base.liveness.health",
    "base.system.logs": "base.liveness.wait_notice",
    "base.system.probe": "base.liveness.probe",
    "base.system.process": "base.system.memory",
    "base.system.program": "utils.program",
    "base.tree": "tree",
    "base.types": "types",
    "cli.__main__": "__main__",
    "distributed.server.owners": "distributed.server.temporary",
    "envs.examples": "envs.games.examples",
    "learner.losses": "learner.off_policy.losses learner.off_policy.noise learner.on_policy.advantages "
    "learner.returns learner.target",
    "learner.on_policy.ipg": "learner.interpolated.ipg",
    "learner.on_policy.policy_critics": "learner.interpolated.policy_critics",
    "learner.on_policy.policy_losses": "learner.interpolated.losses",
    "learner.on_policy.ppo": "learner.on_policy.kl_penalty",
    "learner.stepping.devices": "learner.stepping.compiling",
    "learner.stepping.ranks": "learner.stepping.reducing",
    "learner.stepping.reports": "learner.stepping.histograms learner.stepping.readings",
    "learner.stepping.stepper": "learner.stepping.skipping",
    "model.activations": "model.layers.activations model.layers.kaf",
    "model.actor_critic": "model.policy.actor_critic model.policy.orthogonal model.policy.value_function",
    "model.base": "model.composed",
    "model.conv": "model.layers.conv model.layers.conv_layers",
    "model.curiosity": "model.policy.curiosity",
    "model.distributions": "model.policy.multi_discrete",
    "model.filters": "learner.parameter_server.counting model.policy.filters",
    "model.heads": "model.policy.policy_head model.policy_head",
    "model.mlp": "model.layers.allocate model.layers.mlp",
    "model.off_policy.action_range": "model.off_policy.squashed_normal",
    "model.off_policy.actor_critics": "model.off_policy.soft_actor_critics",
    "model.off_policy.critics": "model.off_policy.ensemble",
    "model.off_policy.q_function": "model.off_policy.noisy model.off_policy.quantiles",
    "model.recurrent": "model.layers.recurrent",
    "model.torso": "model.images model.layers.images",
    "plugins.clusters.redis.certificates": "distributed.server.certificates",
    "plugins.games.deepmind_lab": "envs.games.deepmind_lab",
    "plugins.games.tictactoe": "envs.players.tictactoe",
    "plugins.games.vizdoom": "envs.games.vizdoom",
    "replay.archive": "replay.archive.transfer",
    "replay.base": "replay.uniform",
    "replay.batches": "replay.engine.batches replay.engine.fetcher replay.engine.sampling",
    "replay.sequences": "replay.trajectory_replay",
    "replay.state": "replay.stream.ages",
    "replay.store.storage": "replay.stream.live_chunks",
    "replay.stream.conflicts": "replay.engine.conflicts",
    "replay.stream.limiter": "replay.stream.credit",
    "replay.trajectories.lanes": "replay.trajectories.cutting",
    "replay.trajectories.ledger": "replay.trajectories.fullness replay.trajectories.handed",
    "rlx.client.training": "rlx.client.random_agent",
    "run.build.saved_policy": "run.build.pretrained",
    "run.evaluation": "evaluation",
    "run.launch.check": "run.launch.prepare",
    "run.launch.supervise": "run.launch.children",
    "run.observers": "observers",
    "run.observers.files": "run.observers.trackers",
    "run.process.interrupts": "run.process.liveness.lifeline run.process.output",
    "run.roles.agent": "main.agent",
    "run.roles.eval": "main.eval",
    "run.roles.learner": "main.learner",
    "run.roles.parameter_server": "main.parameter_server",
    "run.roles.rlx_client": "main.rlx_client",
    "run.roles.rlx_server": "main.rlx_server run.session.serving",
    "run.session.intake": "run.session.waiting",
    "run.view.live.text": "run.view.live.describe",
    "run.view.play": "run.commands.play",
    "run.view.run_view": "run.view.outcome",
}
#: Modules by their earlier path -> where they are now.
MODULES = {f"surreal.{path}": f"surreal.{now}" for now, paths in _EARLIER.items() for path in paths.split()}
#: Single names by their earlier path, where a module was split or a name changed as well -> where they are now.
NAMES: dict[str, str] = {
    "surreal.agent.random_actions.RandomStart": "surreal.agent.policy_agent.RandomStart",
    "surreal.replay.engine.sampling.sample_uniform": "surreal.replay.store.rows.sample_uniform",
}

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MODULES = {*MODULES, *(path.rpartition(".")[0] for path in NAMES)}
_PARENTS = {".".join(parts[:end]) for parts in (path.split(".") for path in _MODULES) for end in range(2, len(parts))}


class MovedFinder:
    """A finder for `sys.meta_path`, which also loads the modules that it finds.

    It comes first: an upgrade may leave a folder with only `__pycache__` behind, which would count as a package.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        if name not in _MODULES and name not in _PARENTS:
            return None
        if _file(name) is None:
            origin = _file(MODULES[name]) if name in MODULES else None  # with `python -m NAME`, it is in sys.argv
            return ModuleSpec(name, self, origin=origin, is_package=name in _PARENTS)  # type: ignore[arg-type]
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is None:  # a folder that became one file
            spec.submodule_search_locations = []
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module empty: names are looked up when they are used."""

    def get_code(self, name: str) -> CodeType | None:
        """Get what `python -m NAME` runs."""
        from importlib.util import find_spec

        spec = find_spec(MODULES[name]) if name in MODULES else None
        return None if spec is None else cast("InspectLoader", spec.loader).get_code(spec.name)


class _MovedModule(ModuleType):
    """An earlier path, whose names are looked up where they are now."""

    def __getattr__(self, name: str) -> Any:
        module, _, now = NAMES.get(f"{self.__name__}.{name}", "").rpartition(".")
        module = module or MODULES.get(self.__name__, "")
        if not module or name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), now or name)


def _file(name: str) -> str | None:
    path = os.path.join(_PACKAGE, *name.split(".")[1:])
    return next(filter(os.path.isfile, (f"{path}.py", os.path.join(path, "__init__.py"))), None)
