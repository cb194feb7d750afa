"""`surreal metrics`: metrics of runs for Prometheus, by which agents and servers can be scaled.

figures.py   the table of all metrics, each computed from the heartbeats of a run
serving.py   the answer to a scrape, and the port on which it is served until Ctrl-C
"""
