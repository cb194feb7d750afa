"""Read and show runs in progress; play saved policies."""
