"""The contract of a workload: its description, its code, its data and what it shows."""
