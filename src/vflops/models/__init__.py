"""Networks that the workloads share, by name; the registry needs no torch, the networks do."""
