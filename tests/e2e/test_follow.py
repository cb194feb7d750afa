"""A second learner with an algorithm and a policy of its own, on the experience of a run that another one owns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_a_prioritized_learner_follows_the_run_of_a_uniform_one_and_ends_without_it(workplace: Workplace) -> None:
    alone = ["--set", "sender.lookahead=3", "--set", "eval.enabled=false", *workplace.one_agent, *workplace.endless]
    command = workplace.start("run", "cartpole-dqn", *alone)
    run_dir = workplace.run_dir()
    workplace.wait_for((run_dir / "redis.address").exists, "the address")
    address = (run_dir / "redis.address").read_text().split()[0]
    workplace.wait_for(lambda: workplace.knows() and workplace.status()["version"] > 1, "the first updates")
    second = workplace.folder / "runs" / "more" / "second"  # a folder of its own, beside those of runs
    begin = workplace.status()["version"]
    own = ["replay.follow=true", "broadcast.policy=second", "learner.n_step=4", "learner.gamma=0.9"]
    own += ["sender.lookahead=3", "learner.max_updates=40", "checkpoint.checkpoint_time_interval=900"]
    overrides = [item for setting in own for item in ("--set", setting)]
    code, output = workplace.run(
        *("learner", "cartpole-per-dqn", "--run", run_dir.name, "--redis", address, "--run-dir", str(second)),
        *overrides,
    )
    assert code == 0, output
    assert "done: max_updates: 40 updates were done" in output
    assert [path.name for path in (second / "checkpoints").iterdir()] == ["0000000040.safetensors"]
    assert (second / "priorities.safetensors").exists()
    assert not (run_dir / "priorities.safetensors").exists()
    workplace.wait_for(lambda: workplace.status()["version"] > begin, "the first one's learning beside it")
    before = workplace.status()
    workplace.wait_for(lambda: workplace.status()["env_steps"] > before["env_steps"], "the other one's run to go on")
    assert workplace.status()["version"] >= before["version"]
    command.interrupt()
    assert command.wait() in (0, 130), command.output
    workplace.assert_nothing_is_left()
