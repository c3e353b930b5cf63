"""Training of one job on P ranks: precision, optimizers, schedules, batch norm, checkpoints."""
