"""From a file, a preset and overrides to a checked `Config`, and back to YAML."""
