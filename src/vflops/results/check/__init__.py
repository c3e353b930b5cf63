"""Rules for valid runs. Each gives a verdict with evidence, based on the run folder alone."""
