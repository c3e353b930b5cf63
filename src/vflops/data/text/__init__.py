"""Text: tokens of a synthetic source, of text files or of ``.bin`` shards, read as windows."""
