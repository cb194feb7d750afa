"""Wrappers of gymnasium environments by the names used in configurations, and the monitor of raw episodes.

It knows `atari`.
"""

from surreal.envs.wrappers.named import RewardClip, RewardScale, RewardSign, WrapperSpec, wrapper_names

__all__ = ["RewardClip", "RewardScale", "RewardSign", "WrapperSpec", "wrapper_names"]
