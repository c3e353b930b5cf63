"""Commands that plan, run and scale trainings."""
