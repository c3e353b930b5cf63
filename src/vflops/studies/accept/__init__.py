"""The acceptance test of a machine: promised figures, measured figures, and a verdict."""
