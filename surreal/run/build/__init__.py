"""From configuration to objects: the only place where that happens. It knows `process`."""
