"""How ranks share the training of one model, with one plan per parallel mode."""
