"""The parts of the page: pure functions from what is known of runs to Dash components."""
