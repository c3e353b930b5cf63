"""Archives of runs, signatures, and their verification."""
