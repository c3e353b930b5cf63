"""The papers' scaling experiments: how a machine does when a workload grows with it."""
