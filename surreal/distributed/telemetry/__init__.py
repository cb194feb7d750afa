"""Logs, metrics and heartbeats of every process, through Redis into the run folder. It builds on `connection`."""

from surreal.distributed.telemetry.telemetry import Telemetry

__all__ = ["Telemetry"]
