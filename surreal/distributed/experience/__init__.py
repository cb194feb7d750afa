"""Experience: from an agent's steps to chunks in a stream (`sending`), and from there to a replay (`reading`).

`stream.py` has the commands that both ends share, `shards.py` says where the streams are, `format` has the bytes. It
knows only `connection`. `surreal.run` hands senders to agents and RLX servers; `surreal.replay` imports the readers.
"""
