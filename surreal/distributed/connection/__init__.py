"""Connections to Redis: addresses, clients, retries, rights, scripts, key names. The other folders build on it."""
