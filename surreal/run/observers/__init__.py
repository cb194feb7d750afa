"""What watches a run from inside, named in a configuration like any class: callbacks, and sinks of its metrics.

Who builds processes (`surreal.run`) imports this; nothing else of the package does.
"""

from surreal.run.observers.callback import Callback as Callback
from surreal.run.observers.sinks.base import MetricSink as MetricSink
from surreal.run.observers.sinks.base import Numbers as Numbers
from surreal.run.observers.sinks.console import ConsoleSink as ConsoleSink
from surreal.run.observers.sinks.csv_file import CsvSink as CsvSink
from surreal.run.observers.sinks.mlflow_tracking import MlflowSink as MlflowSink
from surreal.run.observers.sinks.weights_and_biases import WandbSink as WandbSink
