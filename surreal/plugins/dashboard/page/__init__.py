"""The parts of the page: pure functions from the data of runs to Dash components."""
