"""The formats of the files in a run folder."""
