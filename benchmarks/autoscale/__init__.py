"""The model that `benchmarks.autoscaling` and its tests scale: a recorded run, and KEDA with its HPA.

record.py      runs a learner with one to four agents and writes recording.json
rule.py        reads the ScaledObjects of k8s/overlays/autoscale
controller.py  models the horizontal pod autoscaler that KEDA creates from them
fleet.py       models a learner, its limiter and its agents, and the delay of their metrics in Prometheus
sessions.py    models RLX servers and their sessions
scenarios.py   changes the load, and measures how well the number of pods follows
"""
