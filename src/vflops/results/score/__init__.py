"""The score of a run: a pure function of its folder, with the same bytes on any machine."""
