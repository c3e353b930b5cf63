"""What tests and benchmarks share: handmade run folders, a real SLURM, shaped links, a browser."""
