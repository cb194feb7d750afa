"""Apps: folders with an `app.yaml`, an environment program that talks RLX, and perhaps an algorithm to edit.

templates/       what new apps are made of: plain files, no code of this package
importing/       an app.yaml of RELAAX becomes ours

Only the command line imports it.
"""
