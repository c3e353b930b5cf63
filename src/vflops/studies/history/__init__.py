"""Histories: where the figures of the runs in a folder changed, and whether for the worse."""
