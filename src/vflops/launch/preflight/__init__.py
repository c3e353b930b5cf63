"""Checks the nodes of a run in about a minute before it starts."""
