"""Nodes that join a run, started by whatever launcher a site has."""
