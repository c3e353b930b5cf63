"""Runs side by side: which of their figures differ beyond chance, and what else differs."""
