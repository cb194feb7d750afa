"""From configuration to objects: the only place where this happens. It knows `process`."""
