"""How ranks share the training of one model: one plan for each parallel mode."""
