"""The roofline: measured ceilings, and where a counted model stands under them."""
