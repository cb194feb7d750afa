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

#: Modules by their earlier path -> where they are now.
MODULES = {
    "surreal.agent.exploring.epsilon_greedy": "surreal.agent.q_agent",
    "surreal.agent.exploring.noise": "surreal.agent.noise",
    "surreal.agent.exploring.parameter_noise": "surreal.agent.noise",
    "surreal.agent.exploring.random_start": "surreal.agent.policy_agent",
    "surreal.agent.exploring.sampler": "surreal.agent.sampler",
    "surreal.agent.exported.agent": "surreal.agent.exported",
    "surreal.agent.exported.file": "surreal.agent.exported",
    "surreal.agent.fitting": "surreal.agent.forward",
    "surreal.agent.noisy_q_agent": "surreal.agent.q_agent",
    "surreal.agent.random_actions": "surreal.agent.q_agent",
    "surreal.agent.returns": "surreal.agent.slots",
    "surreal.agent.sampling_agent": "surreal.agent.policy_agent",
    "surreal.base.checkpoint.ranking": "surreal.base.checkpoint.store",
    "surreal.base.liveness.health": "surreal.base.system.health",
    "surreal.base.liveness.probe": "surreal.base.system.probe",
    "surreal.base.liveness.wait_notice": "surreal.base.system.logs",
    "surreal.base.system.memory": "surreal.base.system.process",
    "surreal.distributed.server.certificates": "surreal.plugins.clusters.redis.certificates",
    "surreal.distributed.server.temporary": "surreal.distributed.server.owners",
    "surreal.envs.games.deepmind_lab": "surreal.plugins.games.deepmind_lab",
    "surreal.envs.games.examples": "surreal.envs.examples",
    "surreal.envs.games.vizdoom": "surreal.plugins.games.vizdoom",
    "surreal.envs.players.tictactoe": "surreal.plugins.games.tictactoe",
    "surreal.errors": "surreal.base.errors",
    "surreal.evaluation": "surreal.run.evaluation",
    "surreal.learner.interpolated.ipg": "surreal.learner.on_policy.ipg",
    "surreal.learner.interpolated.losses": "surreal.learner.on_policy.policy_losses",
    "surreal.learner.interpolated.policy_critics": "surreal.learner.on_policy.policy_critics",
    "surreal.learner.off_policy.losses": "surreal.learner.losses",
    "surreal.learner.off_policy.noise": "surreal.learner.losses",
    "surreal.learner.on_policy.advantages": "surreal.learner.losses",
    "surreal.learner.on_policy.kl_penalty": "surreal.learner.on_policy.ppo",
    "surreal.learner.parameter_server.counting": "surreal.model.filters",
    "surreal.learner.returns": "surreal.learner.losses",
    "surreal.learner.stepping.compiling": "surreal.learner.stepping.devices",
    "surreal.learner.stepping.histograms": "surreal.learner.stepping.reports",
    "surreal.learner.stepping.readings": "surreal.learner.stepping.reports",
    "surreal.learner.stepping.reducing": "surreal.learner.stepping.ranks",
    "surreal.learner.stepping.skipping": "surreal.learner.stepping.stepper",
    "surreal.learner.target": "surreal.learner.losses",
    "surreal.main.agent": "surreal.run.roles.agent",
    "surreal.main.eval": "surreal.run.roles.eval",
    "surreal.main.learner": "surreal.run.roles.learner",
    "surreal.main.parameter_server": "surreal.run.roles.parameter_server",
    "surreal.main.rlx_client": "surreal.run.roles.rlx_client",
    "surreal.main.rlx_server": "surreal.run.roles.rlx_server",
    "surreal.model.composed": "surreal.model.base",
    "surreal.model.images": "surreal.model.torso",
    "surreal.model.layers.activations": "surreal.model.activations",
    "surreal.model.layers.allocate": "surreal.model.mlp",
    "surreal.model.layers.conv": "surreal.model.conv",
    "surreal.model.layers.conv_layers": "surreal.model.conv",
    "surreal.model.layers.images": "surreal.model.torso",
    "surreal.model.layers.kaf": "surreal.model.activations",
    "surreal.model.layers.mlp": "surreal.model.mlp",
    "surreal.model.layers.recurrent": "surreal.model.recurrent",
    "surreal.model.off_policy.ensemble": "surreal.model.off_policy.critics",
    "surreal.model.off_policy.noisy": "surreal.model.off_policy.q_function",
    "surreal.model.off_policy.quantiles": "surreal.model.off_policy.q_function",
    "surreal.model.off_policy.soft_actor_critics": "surreal.model.off_policy.actor_critics",
    "surreal.model.off_policy.squashed_normal": "surreal.model.off_policy.action_range",
    "surreal.model.policy.actor_critic": "surreal.model.actor_critic",
    "surreal.model.policy.curiosity": "surreal.model.curiosity",
    "surreal.model.policy.filters": "surreal.model.filters",
    "surreal.model.policy.multi_discrete": "surreal.model.distributions",
    "surreal.model.policy.orthogonal": "surreal.model.actor_critic",
    "surreal.model.policy.policy_head": "surreal.model.heads",
    "surreal.model.policy.value_function": "surreal.model.actor_critic",
    "surreal.model.policy_head": "surreal.model.heads",
    "surreal.observers": "surreal.run.observers",
    "surreal.replay.archive.transfer": "surreal.replay.archive",
    "surreal.replay.engine.batches": "surreal.replay.batches",
    "surreal.replay.engine.conflicts": "surreal.replay.stream.conflicts",
    "surreal.replay.engine.fetcher": "surreal.replay.batches",
    "surreal.replay.engine.sampling": "surreal.replay.batches",
    "surreal.replay.stream.ages": "surreal.replay.state",
    "surreal.replay.stream.credit": "surreal.replay.stream.limiter",
    "surreal.replay.stream.live_chunks": "surreal.replay.store.storage",
    "surreal.replay.trajectories.cutting": "surreal.replay.trajectories.lanes",
    "surreal.replay.trajectories.fullness": "surreal.replay.trajectories.ledger",
    "surreal.replay.trajectories.handed": "surreal.replay.trajectories.ledger",
    "surreal.replay.trajectory_replay": "surreal.replay.sequences",
    "surreal.replay.uniform": "surreal.replay.base",
    "surreal.rlx.client.random_agent": "surreal.rlx.client.training",
    "surreal.run.build.pretrained": "surreal.run.build.saved_policy",
    "surreal.run.commands.play": "surreal.run.view.play",
    "surreal.run.launch.children": "surreal.run.launch.supervise",
    "surreal.run.launch.prepare": "surreal.run.launch.check",
    "surreal.run.observers.trackers": "surreal.run.observers.files",
    "surreal.run.process.liveness.lifeline": "surreal.run.process.interrupts",
    "surreal.run.process.output": "surreal.run.process.interrupts",
    "surreal.run.session.serving": "surreal.run.roles.rlx_server",
    "surreal.run.session.waiting": "surreal.run.session.intake",
    "surreal.run.view.live.describe": "surreal.run.view.live.text",
    "surreal.run.view.outcome": "surreal.run.view.run_view",
    "surreal.schedules": "surreal.base.schedules",
    "surreal.specs": "surreal.base.specs",
    "surreal.tree": "surreal.base.tree",
    "surreal.types": "surreal.base.types",
    "surreal.utils.program": "surreal.base.system.program",
    "surreal.utils.pytorch": "surreal.base.pytorch",
}
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
        if not _exists(name):
            return ModuleSpec(name, self, is_package=name in _PARENTS)  # type: ignore[arg-type]
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


def _exists(name: str) -> bool:
    path = os.path.join(_PACKAGE, *name.split(".")[1:])
    return os.path.isfile(f"{path}.py") or os.path.isfile(os.path.join(path, "__init__.py"))
