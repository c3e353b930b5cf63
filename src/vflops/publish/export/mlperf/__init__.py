"""MLPerf Training result logs and submissions, written without its package."""

RULE_SET = "4.0.0"
"""The newest MLPerf Training rule set with an image classification benchmark."""
BENCHMARK = "resnet"
"""Its name in MLPerf."""
WORKLOAD = "image-classification"
"""Its name in vflops."""
RESULTS = 5
"""The exact number of trainings that a submission must hold."""
