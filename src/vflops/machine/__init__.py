"""The machine under test: description, ceilings (peak speeds), telemetry and devices."""
