"""MLPerf Training result logs and submissions, written without MLPerf's package."""

RULE_SET = "4.0.0"
"""The newest MLPerf Training rule set with an image classification benchmark."""
BENCHMARK = "resnet"
"""The name of the benchmark in MLPerf."""
WORKLOAD = "image-classification"
"""The name of the same workload in vflops."""
RESULTS = 5
"""The exact number of results that a submission must hold."""
