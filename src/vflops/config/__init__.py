"""Settings of a run: typed, validated, and free of torch."""
