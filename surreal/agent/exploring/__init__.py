"""Ways to explore: what is done to an agent's best action. Knows `agent/slots.py`; agents use it."""
