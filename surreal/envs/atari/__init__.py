"""Preprocessing of Atari games, for single games and for ALE's vector environment."""
