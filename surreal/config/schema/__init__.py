"""The schema of configurations: one class per section; each setting with its meaning, unit, range and default."""
