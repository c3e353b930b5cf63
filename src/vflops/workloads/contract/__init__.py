"""The interface of a workload: its description, its code, its data and its figures."""
