"""Where a run's processes live beyond one machine: Kubernetes and Slurm, and how many there should be.

Only the command line imports this part. Neither engine is a dependency: what they are given is text, written from a
checked configuration.
"""
