"""What must stay true of a run whatever happens to it. Pure: what is seen goes in, sentences about what broke come out.

verdict.py      how a judgement looks
experience.py   one shard: nothing lost, nothing doubled, the count of env steps exact
senders.py      what the agents took for acknowledged, against what all shards hold
versions.py     published versions, and those that processes hold
scores.py       evaluation goes on
recovery.py     learning goes on after each disturbance
"""
