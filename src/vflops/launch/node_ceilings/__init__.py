"""The ceilings of the compute nodes, measured on them before training."""
