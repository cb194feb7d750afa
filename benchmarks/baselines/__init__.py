"""Baselines and peers of the benchmarks; none imports Surreal, and each bare baseline is short."""
