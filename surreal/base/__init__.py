"""The vocabulary of the whole system, and what every process needs from its machine.

Everything may import this package. The vocabulary (types, specs, tree, values, errors) imports only itself.
"""
