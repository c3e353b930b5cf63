"""AutoML as the workload: architectures, search, workers without a master."""
