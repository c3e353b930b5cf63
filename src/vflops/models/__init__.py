"""Networks that workloads share, found by name; the registry itself needs no torch."""
