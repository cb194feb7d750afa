"""One module for each role, that is, kind of process; and rooms, each of which knows only those above it.

process/     the frame that all processes share
build/       from configuration to objects
session/     what runs beside a role's loop
launch/      `surreal run`, on top of the roles
commands/    the other commands
"""
