"""The usual preprocessing of Atari games, for single games and for ALE's own vector environment."""
