"""Chooses what to train next: distances, a surrogate model, searchers and tuning, without torch."""
