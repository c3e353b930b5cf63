"""Training data: checking, packing for fast reading, and staging to nodes."""
