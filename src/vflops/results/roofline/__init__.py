"""The roofline: measured ceilings, and the bounds of a counted model under them."""
