"""Checks beyond the schema: messages, the classes that are named, and what processes must agree on."""
