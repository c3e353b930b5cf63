"""The back end of SLURM."""
