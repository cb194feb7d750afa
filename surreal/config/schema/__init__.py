"""What a configuration may contain: one class per section; each setting with its meaning, unit, range and default."""
