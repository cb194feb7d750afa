"""Shared types of the whole system, and the system services that every process needs.

Everything may import this package. types, specs, tree, values and errors import only each other.
"""
