"""A recorded run repeated on the reader's machine, and how the two compare."""
