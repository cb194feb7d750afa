"""Published results of the presets' tasks and algorithms."""

from __future__ import annotations

from typing import NamedTuple


class Reference(NamedTuple):
    """A published result: mean return, and the env steps that it took."""

    mean_return: float
    env_steps: int


class Aim(NamedTuple):
    """A mean return that a preset should reach within so many env steps, with its source."""

    preset: str
    mean_return: float
    env_steps: int
    source: str


#: What the presets should reach; those that have not been run stay in the table.
AIMS = (
    Aim("halfcheetah-flashsac", 12_893, 1_000_000, "CrossQ and FlashSAC"),
    Aim("hopper-flashsac", 4064, 1_000_000, "CrossQ and FlashSAC"),
    Aim("walker2d-sac", 5007, 1_000_000, "Tianshou's SAC"),
    Aim("ant-sac", 5850, 1_000_000, "Tianshou's SAC"),
    Aim("humanoid-sac", 5489, 1_000_000, "Tianshou's SAC"),
    Aim("lunarlander-continuous-tqc", 278, 500_000, "the Zoo's TQC"),
    Aim("bipedalwalker-sac", 330, 500_000, "the Zoo's TQC"),
    Aim("acrobot-dqn", -69, 100_000, "the Zoo's QR-DQN"),
    Aim("mountaincar-dqn", -101, 120_000, "the Zoo's DQN"),
)


class Timed(NamedTuple):
    """A return that a preset should reach in a time, confirmed over 100 episodes."""

    mean_return: float
    limit_s: int  #: from the start of the command to its end

    @property
    def settings(self) -> tuple[str, ...]:
        goal, limit = f"run.stop_at_return={self.mean_return:g}", f"run.max_time_s={self.limit_s - 100}"
        return goal, limit, "eval.confirm_episodes=100"


TIMED = {"halfcheetah-tqc": Timed(9535, 3600), "atari-ppo": Timed(18, 7200)}

#: RL Baselines3 Zoo's table, in which LunarLander has version 2, and Tianshou's, in which MuJoCo has version 3. The
#: bandit's lies between its two best arms, which win 0.8 and 0.6: of 1000 pulls of the best, luck alone takes one run
#: in 10,000 below it.
REFERENCES = {
    "bandit-pg": Reference(0.75, 10_000),
    "cartpole-dqn": Reference(500, 50_000),
    "cartpole-per-dqn": Reference(500, 50_000),
    "cartpole-a2c": Reference(500, 500_000),
    "cartpole-ppo": Reference(500, 100_000),
    "cartpole-pqn": Reference(500, 500_000),  # its paper's
    "cartpole-trpo": Reference(500, 100_000),
    "cartpole-novel-ppo-lstm": Reference(500, 100_000),
    "cartpole-r2d2": Reference(475, 100_000),  # Gymnasium's own: from there on the task counts as solved
    "cartpole-novel-r2d2": Reference(475, 100_000),
    "acrobot-dqn": Reference(-77, 100_000),
    "acrobot-a2c": Reference(-83, 500_000),
    "acrobot-ppo": Reference(-74, 1_000_000),
    "mountaincar-dqn": Reference(-101, 120_000),
    "mountaincar-continuous-sac": Reference(94, 50_000),
    "pendulum-a2c": Reference(-163, 1_000_000),
    "pendulum-ppo": Reference(-172, 100_000),
    "pendulum-trpo": Reference(-175, 100_000),
    "pendulum-ipg": Reference(-172, 100_000),  # PPO's, whose policy gradient it extends
    "pendulum-ddpg": Reference(-152, 20_000),
    "pendulum-td3": Reference(-152, 20_000),
    "pendulum-sac": Reference(-157, 20_000),
    "pendulum-simba": Reference(-157, 20_000),  # SAC's, whose networks it changes
    "pendulum-crossq": Reference(-157, 20_000),  # SAC's, whose critics it changes
    "pendulum-tqc": Reference(-157, 20_000),  # SAC's, whose critics it changes
    "lunarlander-dqn": Reference(154, 100_000),
    "lunarlander-ppo": Reference(242, 1_000_000),
    "lunarlander-continuous-ppo": Reference(271, 1_000_000),
    "lunarlander-continuous-trpo": Reference(262, 200_000),
    "lunarlander-continuous-ddpg": Reference(230, 300_000),
    "lunarlander-continuous-td3": Reference(207, 300_000),
    "lunarlander-continuous-sac": Reference(260, 500_000),
    "lunarlander-continuous-tqc": Reference(278, 500_000),
    "bipedalwalker-a3c-lstm": Reference(300, 5_000_000),
    "bipedalwalker-ppo": Reference(288, 5_000_000),
    "bipedalwalker-td3": Reference(306, 1_000_000),
    "bipedalwalker-sac": Reference(298, 500_000),
    "halfcheetah-ppo": Reference(5819, 1_000_000),
    "halfcheetah-td3": Reference(9656, 1_000_000),
    "halfcheetah-sac": Reference(9535, 1_000_000),
    "halfcheetah-tqc": Reference(12_090, 1_000_000),
    "halfcheetah-crossq": Reference(10_012, 300_000),  # its paper's, on version 4, as the next four
    "halfcheetah-xqc": Reference(10_622, 300_000),
    "halfcheetah-simba": Reference(8593, 300_000),  # SAC's in those papers, whose networks it changes
    "halfcheetah-flashsac": Reference(11_481, 300_000),
    "hopper-flashsac": Reference(3674, 300_000),
    "hopper-ppo": Reference(2410, 1_000_000),
    "hopper-td3": Reference(3606, 1_000_000),
    "hopper-sac": Reference(2326, 1_000_000),
    "walker2d-sac": Reference(5007, 1_000_000),  # Tianshou's, as the next two
    "ant-sac": Reference(5850, 1_000_000),
    "humanoid-sac": Reference(5489, 1_000_000),
    "atari-breakout-ppo": Reference(398, 10_000_000),
    "atari-dqn": Reference(20.6, 10_000_000),
    "atari-a2c": Reference(17.3, 10_000_000),
    "atari-ppo": Reference(21.0, 10_000_000),
}
