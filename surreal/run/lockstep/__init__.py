"""Runs in lockstep (`run.deterministic`): one process acts, learns and evaluates in turn, by counts and never by time.

It is the learner's process, and everything in it is what other runs are made of. A turn:

    the agents take over the newest parameters, and each acts until its round (or chunk) is in the stream
    the replay takes it in, and the learner does all updates that the samples-per-insert ratio allows

A run is a series of **checkpoint intervals**. Each is rebuilt from its checkpoint's files, the run's seed and the
number of updates, whether the run was interrupted or not, so an interruption makes no difference. Episodes in progress
are truncated at its end. An interrupted interval is dropped, and `--resume` repeats it.

The same turn is that of agents that compute gradients (`gradient_agent`): each acts, and learns from what it did.

And it is that of a `rehearsal`, in which `check` tries a run's classes on random rows, and the doctor on real ones.

Knows `process`, `build` and `session`; the roles of learner and agent use it.
"""
