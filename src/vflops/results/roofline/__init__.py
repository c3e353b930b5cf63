"""The roofline: measured ceilings, and the bounds that they set for a counted model."""
