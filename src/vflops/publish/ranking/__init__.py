"""Submissions → a static ranking: read with bounds, verified, checked, ranked, drawn."""
