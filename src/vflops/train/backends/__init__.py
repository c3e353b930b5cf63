"""Backends: a model in training in each of the frameworks."""
