"""The model that `benchmarks.autoscaling` and its tests scale: a run as it was recorded, and KEDA with its HPA.

record.py      runs a learner with one to four agents and writes recording.json
rule.py        what the ScaledObjects of k8s/overlays/autoscale say
controller.py  the horizontal pod autoscaler that KEDA makes of them
fleet.py       a learner, its limiter and its agents, with what they report and when Prometheus knows it
sessions.py    RLX servers and their sessions
scenarios.py   what happens to them, and how well the number of pods follows
"""
