"""Wrappers of gymnasium environments by the names used in configurations, and the monitor of raw episodes."""

from surreal.envs.wrappers.named import WrapperSpec, wrapper_names
from surreal.envs.wrappers.steps import RewardClip, RewardScale, RewardSign

__all__ = ["RewardClip", "RewardScale", "RewardSign", "WrapperSpec", "wrapper_names"]
