"""Atari games: their usual preprocessing, around single games and in ALE's own vector environment."""
