"""Ensembles whose models train on nodes of our choice, each with its clock and its sensors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.formats.job import BagRecord, JobRecord
from vflops.record.formats.node import Clock, NodeRecord, node_file, telemetry_file
from vflops.record.formats.telemetry import Absent, Header, Kind, Series
from vflops.record.log import events
from vflops.record.log.telemetry_log import TelemetryWriter
from vflops.record.readout.contents import Contents
from vflops.results.score.score_file import EnsembleScore, Score
from vflops.results.score.scoring import score

WALL_S = 1.8e9
"""What right clocks show when the monotonic ones are at 0."""


class Site:
    """A run whose models are on nodes of our choice, each with a clock of its own."""

    def __init__(self, parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = HandmadeRun(parent, monkeypatch)
        self.off_s = 0.0
        site = self

        class Wall:
            """Stands for the ``datetime`` that events ask."""

            fromisoformat = datetime.fromisoformat

            @staticmethod
            def now(zone: timezone) -> datetime:
                return datetime.fromtimestamp(WALL_S + site.run.clock.now_s + site.off_s, zone)

        monkeypatch.setattr(events, "datetime", Wall)

    def trains(
        self, job: int, began_s: float, *hosts: str, off_s: float = 0.0, **facts: Any
    ) -> Path:
        """An attempt of 3 epochs on these hosts, all of whose clocks are off by ``off_s``."""
        self.off_s = off_s
        place = self.run.attempt(job, began_s, *course(0.4, 0.85, 0.88))
        for number, host in enumerate(hosts):
            node(place, number, len(hosts), host, off_s, **facts)
        return place

    def scored(self) -> Score:
        return score(Contents(self.run.folder))

    def ensemble(self, *jobs: int) -> EnsembleScore:
        """The score of an ensemble of these jobs."""
        self.off_s = 0.0
        with self.run.folder.start_attempt(job=0) as log:
            log.write(
                "ensemble",
                workload="image-classification",
                repeat=0,
                planned=len(jobs),
                jobs=jobs,
                evaluated=200,
                sizes=[{"models": len(jobs), "quality": 0.9}],
                took_s=1.0,
            )
            log.write("end")
        (found,) = self.scored().ensembles
        return found


def model(number: int) -> JobRecord:
    bag = BagRecord(model=number - 1, models=2, bootstrap="poisson", seed=0)
    return job(number, repeat=0, bag=bag)


def node(
    place: Path,
    number: int,
    count: int,
    host: str,
    off_s: float | None,
    reference: str | None = "head",
) -> None:
    known = off_s is not None
    clock = Clock(
        offset_s=off_s,
        uncertainty_s=0.001 if known else None,
        fault=None if known else "no answer",
    )
    NodeRecord(
        node=number,
        nodes=count,
        host=host,
        name=host,
        reference=reference,
        clock=clock,
        facts=(),
    ).write(node_file(place, number))


_PARTS = {
    "gpu": "accelerator",
    "cpu": "run",
    "memory": "run",
    "net.lo": "network-within",
    "net": "network-between",
}


def series(
    id: str, unit: str = "W", kind: Kind = "gauge", device: str | None = None, source: str = "test"
) -> Series:
    part = next((part for start, part in _PARTS.items() if id.startswith(start)), "processor")
    return Series.model_validate(
        {"id": id, "title": id, "unit": unit, "source": source, "kind": kind, "part": part}
        | {"device": device}
    )


def sample(
    place: Path,
    began_s: float,
    length_s: int,
    columns: Sequence[tuple[Series, float]],
    *,
    number: int = 0,
    off_s: float = 0.0,
    booted_s: float = 0.0,
    absent: Sequence[Absent] = (),
) -> None:
    """A reading a second: gauges stay, counters grow by their value every second."""
    header = Header(
        node=number,
        interval_s=1.0,
        series=tuple(series for series, _ in columns),
        absent=tuple(absent),
    )
    writer = TelemetryWriter(telemetry_file(place, number), header)
    for second in range(length_s + 1):
        at_s = began_s + second
        values = [v * at_s if series.kind == "counter" else v for series, v in columns]
        writer.write(at_s - booted_s, WALL_S + at_s + off_s, values)
    writer.close()


LENGTH_S = 3 + 30 * 1.1 + 3 * 2 + 3 * 0.5
"""From the first step of a course to its last: compilation, steps, evaluations, checkpoints."""
