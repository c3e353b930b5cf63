"""The score of a run: a pure function of its folder, the same bytes on any machine, any day."""
