"""Wrappers of gymnasium environments, by the names that a configuration lists, and the monitor of raw episodes."""

from surreal.envs.wrappers.named import RewardClip, RewardScale, RewardSign, WrapperSpec, wrapper_names

__all__ = ["RewardClip", "RewardScale", "RewardSign", "WrapperSpec", "wrapper_names"]
