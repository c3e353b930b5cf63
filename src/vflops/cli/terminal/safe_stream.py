"""Standard output and error of a terminal, which show deceptive characters of files as escapes.

Text from a file may hold characters that change the writing direction, hide text or control the
terminal. All that the command prints goes through these streams. A pipe or a file gets the text as
it is.
"""

from __future__ import annotations

import re
from io import BufferedWriter, FileIO, TextIOWrapper

from vflops.text import printable

_OWN_SEQUENCES = re.compile(r"(\x1b\[\??[0-9;]*[A-DGHJKhlm])")
"""Colours and movements of the cursor, which the command itself prints."""


class SafeStream(TextIOWrapper):
    """A stream to a terminal."""

    def write(self, text: str, /) -> int:
        """Write text, with the characters escaped that are neither printable nor the command's."""
        if not text.isprintable():
            parts = _OWN_SEQUENCES.split(text)
            parts[::2] = (printable(part, keep="\n\r\t") for part in parts[::2])
            super().write("".join(parts))
        else:
            super().write(text)
        return len(text)


def safe_stream(stream: TextIOWrapper) -> TextIOWrapper:
    """Return the stream to use instead of ``stream``, which is the same unless it is a terminal."""
    if not stream.isatty():
        return stream
    stream.flush()
    file = BufferedWriter(FileIO(stream.fileno(), "w", closefd=False))
    return SafeStream(file, encoding=stream.encoding, errors="replace", line_buffering=True)
