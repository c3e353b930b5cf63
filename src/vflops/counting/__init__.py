"""Counting the work of a model: capture (torch) gives a graph, and conventions (pure) count it."""
