"""What a configuration may say: one class a section, every setting with its meaning, unit, range and default."""
