"""The read side of a run folder: its contents, trained jobs and time lines."""
