"""What a run's folder holds, read while it grows: metrics, scores, configuration, result, logs.

`surreal plot` and `surreal dashboard` stand on it. Nothing is written, and what makes no sense is passed over.
"""
