"""The report of a run: a self-contained page, made from the run folder alone."""
