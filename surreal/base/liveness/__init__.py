"""What a process is doing: loops show that they turn, and whoever waits says for what.

Written to by any component; read by the heartbeat and the watchdog.
"""
