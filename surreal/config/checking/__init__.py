"""Checks beyond the schema: error messages, named classes and their arguments, and what processes must agree on.

It knows `schema`.
"""
