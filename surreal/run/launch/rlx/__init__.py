"""What a launcher does for environments that play over RLX: servers, clients, programs of apps.

arguments.py     what they are told
environment.py   the process of a program
components.py    the words of `surreal run`
companions.py    parts of an app beside a run that was started elsewhere
"""
