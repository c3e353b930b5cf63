"""MLPerf Training's result logs and submission folder, written without its package."""

RULE_SET = "4.0.0"
"""The newest of MLPerf Training's rule sets that has an image classification."""
BENCHMARK = "resnet"
"""What it is called there."""
WORKLOAD = "image-classification"
"""The workload that it is here."""
RESULTS = 5
"""Trainings that a submission of it must hold, no more and no fewer."""
