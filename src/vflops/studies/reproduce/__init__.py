"""Reproductions: the recorded settings of a run, run again here and compared with the record."""
