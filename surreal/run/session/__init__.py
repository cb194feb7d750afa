"""Parts next to a role's loop: scores, checkpoints, publications. It knows `process` and `build`."""
