"""Training of one job on one or more ranks."""
