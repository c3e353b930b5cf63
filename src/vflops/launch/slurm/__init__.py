"""Jobs on SLURM."""
