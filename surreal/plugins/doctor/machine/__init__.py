"""This machine: the installation, and what a run will need of it.

packages.py   Python, packages and their versions, extras that a configuration needs
torch.py      threads and GPUs
resources.py  disk, memory, cores, open files, shared memory
programs.py   redis-server
"""
