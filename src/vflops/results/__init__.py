"""Results computed from a run folder alone, without torch: score, roofline, checks, evidence."""
