"""Reading a run folder: its contents, training jobs and timelines."""
