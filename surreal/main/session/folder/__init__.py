"""What a learner keeps in its run's folder beside checkpoints: how it ended, what it was, its replay's priorities."""
