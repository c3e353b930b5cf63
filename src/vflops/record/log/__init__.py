"""Append-only logs of a run: events and telemetry."""
