"""The speed of a search's workers, from the newest runs beside which it would be stored."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from vflops.config.training import CEILING_PRECISIONS, TrainSettings
from vflops.errors import VflopsError
from vflops.record.folder import RunFolder, newest_first
from vflops.record.readout.contents import Contents
from vflops.results.roofline.run_ceilings import run_ceilings
from vflops.run.estimate import search_speed
from vflops.workloads.automl.search_length import KnownSpeed

_LOOKED_AT = 10
"""How many of the newest runs are read."""


def known_speed(on: str, train: TrainSettings, parent: Path) -> KnownSpeed | None:
    """Return the speed of a worker by the newest search under ``parent``, or else its ceiling.

    Only runs with this ``launch.on`` and the same precision count; None if there is none.
    """
    ceiling: KnownSpeed | None = None
    for path in islice(newest_first(parent), _LOOKED_AT):
        try:
            contents = Contents(RunFolder.open(path))
            if contents.folder.record.settings.launch.on != on:
                continue
            measured = search_speed(train, contents) if contents.workers else None
            if measured:
                return KnownSpeed(measured, path.name)
            ceiling = ceiling or _ceiling(train, contents, path.name)
        except VflopsError:  # a run of another version, or a damaged one
            continue
    return ceiling


def _ceiling(train: TrainSettings, contents: Contents, name: str) -> KnownSpeed | None:
    precision = CEILING_PRECISIONS[train.precision]
    found = [
        flops
        for (_, measured), flops in run_ceilings(contents).compute.items()
        if measured == precision
    ]
    return KnownSpeed(max(found) * train.ranks, name, is_ceiling=True) if found else None
