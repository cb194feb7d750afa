"""What a sweep's file says.

schema.py     its settings
space.py      the values of what varies: a list, or a range; every combination of a grid
loading.py    from the file to a checked `Definition`, and to the configuration of a trial's runs
checking.py   whether its trials make sense
reference.py  its settings, for their page
"""
