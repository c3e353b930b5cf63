"""Evidence: what a run folder held when its run was concluded, who says so, and one file of it."""
