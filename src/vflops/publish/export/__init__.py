"""A run in the forms that others read: MLPerf, CSV, JSON, OpenMetrics, MLflow; without torch."""
