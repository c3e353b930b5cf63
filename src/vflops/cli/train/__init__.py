"""Commands that plan, run and scale training."""
