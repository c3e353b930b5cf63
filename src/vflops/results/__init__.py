"""Results derived from a run folder alone: score, roofline, checks, evidence. No torch."""
