"""Products that only the command line calls. Each has one entry function, `commands.add_to(app)`.

Nothing outside imports a plugin: the command line finds plugins through the entry point `surreal.commands`.
"""
