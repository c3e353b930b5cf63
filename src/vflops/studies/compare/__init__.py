"""Comparisons of runs: which figures differ beyond chance, and what else differs."""
