"""What the benchmarks compare with: each under 40 lines, none imports Surreal."""
