"""From configuration to objects: the only place where that happens. It knows `process`.

What a setting gets wrong raises a `ConfigError`, or an `EnvError`, that names the setting and its place.
"""
