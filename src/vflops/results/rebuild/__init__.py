"""Rebuilds the operation graphs of our workloads from recorded settings, without torch."""
