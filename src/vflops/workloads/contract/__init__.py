"""What a workload provides: its description, its code, its data and its figures."""
