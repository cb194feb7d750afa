"""The parts of every section of the doctor: findings, faults, checks, and the process that runs them."""
