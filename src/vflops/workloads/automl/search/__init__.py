"""Chooses what to train next: distances, surrogate model, searchers, tuning; without torch."""
