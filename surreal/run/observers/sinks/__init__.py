"""Where a run's metrics go beside its folder and TensorBoard: one file a kind, and what feeds them."""
