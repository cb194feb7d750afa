"""What goes on in a role beside its loop: publishing, checkpoints, limits, scores."""
