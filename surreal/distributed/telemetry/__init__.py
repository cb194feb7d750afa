"""Telemetry: logs, metrics and heartbeats of every process, through Redis into the run folder.

It knows only `connection`.
"""

from surreal.distributed.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
