"""Gradients, pushed by agents and taken by parameter servers in one order. It builds on `connection`."""
