"""What watches a run from inside, named in a configuration like any class: callbacks, and sinks of its metrics.

Who builds processes (`surreal.main`) imports this; nothing else of the package does.
"""

from surreal.observers.callback import Callback as Callback
from surreal.observers.sinks.base import MetricSink as MetricSink
from surreal.observers.sinks.base import Numbers as Numbers
from surreal.observers.sinks.console import ConsoleSink as ConsoleSink
from surreal.observers.sinks.csv_file import CsvSink as CsvSink
from surreal.observers.sinks.mlflow_tracking import MlflowSink as MlflowSink
from surreal.observers.sinks.weights_and_biases import WandbSink as WandbSink
