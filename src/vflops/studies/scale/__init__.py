"""The scaling experiments of the papers: how a machine performs as a workload grows."""
