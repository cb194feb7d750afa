"""Gradients: pushed by agents, taken by parameter servers in one order. It knows only `connection`."""
