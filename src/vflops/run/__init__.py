"""Runs, from settings to report: validation, estimates, jobs, the report, and resuming."""
