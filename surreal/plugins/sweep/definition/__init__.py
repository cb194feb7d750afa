"""The file of a sweep.

schema.py     its settings, and the values of settings that vary: a list or a range
loading.py    from the file to a checked `Definition`, and to the configuration of a trial's runs
reference.py  tables of its settings for docs/many-runs.md
"""
