"""The frame that all processes of a run share: arguments, signals, registration, the run's folder, error reports."""
