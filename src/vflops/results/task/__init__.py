"""The task of a run: what is trained to which target; closed if a profile defines it."""
