"""Counting the work of a model: capture (torch) gives a graph, rules (pure) count it."""
