"""Exports of a run for other tools: MLPerf, CSV, JSON, OpenMetrics, MLflow; none needs torch."""
