"""Rules that a run must meet: each a verdict with evidence, from the folder alone."""
