"""Power and energy of a run, from its telemetry."""
