"""Names of the channels and classes in the published files."""

from __future__ import annotations

CHANNELS = tuple(
    "PRECT PS PSL QREFHT T200 T500 TMQ TREFHT TS U850 UBOT V850 VBOT Z1000 Z200 ZBOT".split()
)
"""The fields of a frame, in the order of the files."""

CLASSES = (
    "tropical depression",
    "tropical cyclone",
    "extratropical cyclone",
    "atmospheric river",
)
MAX_BOXES = 15
"""Maximum number of boxes of a frame in the files."""
