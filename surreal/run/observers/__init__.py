"""Callbacks and metric sinks of a run, which a configuration names like any class.

Who builds processes (`surreal.run`) imports this; nothing else of the package does.
"""

from surreal.run.observers.callback import STOP as STOP
from surreal.run.observers.callback import Callback as Callback
from surreal.run.observers.callback import StopWithoutImprovement as StopWithoutImprovement
from surreal.run.observers.files import ConsoleSink as ConsoleSink
from surreal.run.observers.files import CsvSink as CsvSink
from surreal.run.observers.files import MetricSink as MetricSink
from surreal.run.observers.files import MlflowSink as MlflowSink
from surreal.run.observers.files import Numbers as Numbers
from surreal.run.observers.files import WandbSink as WandbSink
