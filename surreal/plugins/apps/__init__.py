"""Apps: folders with an `app.yaml`, an environment program that talks RLX, and perhaps an algorithm to edit.

templates/       plain files from which new apps are made
importing/       converts an app.yaml of RELAAX
"""
