"""Telemetry: logs, metrics and heartbeats of every process, through Redis into the run's folder.

It knows `connection` alone.
"""

from surreal.distributed.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
