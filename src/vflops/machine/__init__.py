"""The machine under test: its description, its ceilings, its telemetry and its devices."""
