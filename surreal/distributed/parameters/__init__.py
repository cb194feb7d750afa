"""Parameters, published by one learner and followed by every agent. It builds on `connection`."""
