"""Experience, from an agent's steps to chunks in a stream, and from there to a replay. It builds on `connection`.

`surreal.run` hands senders to agents and RLX servers; `surreal.replay` imports the readers.
"""
