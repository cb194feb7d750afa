"""Watchers of an environment's episodes: each looks at one thing, and says at the end what is wrong with it."""
