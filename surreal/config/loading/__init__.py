"""From a file or preset and overrides to a checked `Config`, and back to YAML. It knows `schema` and `checking`."""
