"""The runs of a folder over time: where their figures changed, and whether for the worse."""
