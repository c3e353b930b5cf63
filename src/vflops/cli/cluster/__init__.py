"""Commands for runs on a cluster."""
