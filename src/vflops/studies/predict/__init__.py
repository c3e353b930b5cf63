"""How a training would scale: pure formulas from a step, its bytes and the links; no torch."""
