"""The experiments of HPC AI500 V3.0: how a machine does when the workload grows with it."""
