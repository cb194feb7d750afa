"""This machine: the installation, and the resources that a run needs.

packages.py   packages and their versions, extras that a configuration needs, redis-server, torch's threads and GPUs
resources.py  disk, memory, cores, open files, shared memory
"""
