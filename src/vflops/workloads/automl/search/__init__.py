"""What to train next: distance, surrogate, searchers, rounds and tuning; no torch, no files."""
