"""What the published files hold, by name."""

from __future__ import annotations

CHANNELS = tuple(
    "PRECT PS PSL QREFHT T200 T500 TMQ TREFHT TS U850 UBOT V850 VBOT Z1000 Z200 ZBOT".split()
)
"""The fields of a frame, in the files' order, each in its own unit."""

CLASSES = (
    "tropical depression",
    "tropical cyclone",
    "extratropical cyclone",
    "atmospheric river",
)
MOST_BOXES = 15
"""Boxes that a frame of the files has room for."""
