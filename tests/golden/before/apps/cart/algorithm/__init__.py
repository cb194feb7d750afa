"""The algorithm of this app, copied from Surreal 0.1.0."""
