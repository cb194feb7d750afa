"""The scores of evaluation: the book in the run's folder, the best of them, and how they come from elsewhere."""
