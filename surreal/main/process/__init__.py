"""The frame that all processes of a run share: arguments, signals, registration, and how an error looks."""
