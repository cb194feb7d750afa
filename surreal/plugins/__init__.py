"""Products around the core: commands that only the command line calls, and environments of single games.

Nothing outside imports a plugin. Entry points find them: `surreal.commands` names the function `commands.add_to(app)`
of a plugin with commands, and `surreal.environments` names a module that registers environments when it is imported.
"""
