"""A callback and a metric sink, as docs/callbacks.md had them."""

from surreal.observers import Callback, MetricSink


class Note(Callback):
    def __init__(self, run_dir, process, prefix="noted"):
        self.file = (run_dir / f"{prefix}-{process}.txt").open("a")

    def on_evaluation(self, result):
        print(result.version, result.mean_return, file=self.file)

    def on_checkpoint(self, path, updates):
        print(path, updates, file=self.file)

    def close(self):
        self.file.close()


class Table(MetricSink):
    def __init__(self, run_dir):
        self.path = run_dir / "table.txt"

    def write(self, numbers):
        with self.path.open("a") as file:
            for each in numbers:
                print(each.time, each.process, each.step, len(each.values), file=file)
