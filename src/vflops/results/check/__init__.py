"""Rules for valid runs: each gives a verdict with evidence, from the run folder alone."""
