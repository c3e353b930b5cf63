"""Run folders with a chosen name, day, speed and machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.trained_runs import Clock, HandmadeRun, Note, course, job, trained_graph
from vflops.config.profiles import tiny
from vflops.config.settings import Settings
from vflops.record.files import atomic
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.job import DataFacts
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord
from vflops.record.installed_package import installed_package
from vflops.record.log import events
from vflops.record.readout.contents import Contents
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.results.score.scoring import score

WORK_S = 34.5
"""The work time of a training at normal speed: steps, data and checkpoints."""
SAMPLES = 3000
DATA = DataFacts(
    path="/dated",
    synthetic=True,
    fingerprint="0" * 64,
    train=1000,
    validation=200,
    facts={"classes": 4},
)
"""Commands judge these runs in processes of their own, so the graph is that of the settings."""


@dataclass(frozen=True)
class Dated:
    """The properties of a run."""

    day: int
    """Days since 2026-01-01."""
    slower: Sequence[float] = (1.0,)
    """The time of each training relative to normal; seeds count up from ``seed``."""
    quality: Sequence[float] | float = 0.88
    seed: int = 1
    name: str = "a"
    cpu: str = "Test CPU"
    torch: str = "2.13.0"
    clock: int = 2000
    """The momentary clock of the processor."""
    memory: float | None = None
    """A ceiling in bytes per second."""
    settings: Settings = field(default_factory=tiny)
    job: dict[str, Any] = field(default_factory=dict)
    """Fields of each job's record."""
    ends: bool = True


class NamedRun(HandmadeRun):
    """A run folder with a chosen name and day."""

    def __init__(self, parent: Path, id: str, created_utc: str, settings: Settings) -> None:
        self.clock = Clock()
        record = RunRecord(
            id=id,
            workload="image-classification",
            created_utc=created_utc,
            settings=settings,
            versions={"vflops": "0", "python": "3"},
            package=installed_package(),
        )
        self.folder = RunFolder(parent / id, record)
        atomic.make_folder(self.folder.path)
        record.write(self.folder.path / "run.json")
        self.graph = trained_graph()


@contextmanager
def named_run(parent: Path, id: str, created_utc: str, settings: Settings) -> Iterator[NamedRun]:
    """Yield a run whose events have its own clock and are not synced."""
    with mock.patch("os.fsync"):
        run = NamedRun(parent, id, created_utc, settings)
        with (
            mock.patch.object(events, "time", run.clock),
            mock.patch.object(events, "datetime", run.clock.utc),
        ):
            yield run


def system_of(hardware: Mapping[str, str | int], torch: str = "2.13.0") -> SystemRecord:
    """Return a system with only these facts."""
    known: dict[str, Mapping[str, str | int]] = {
        "hardware": hardware,
        "framework": {"torch": torch},
    }
    absent = Fact(name="nothing", value=None, source="test", reason="not looked for")
    layers = [
        Layer(
            name=name,
            facts=tuple(
                Fact(name=fact, value=value, source="test")
                for fact, value in known.get(name, {}).items()
            )
            or (absent,),
        )
        for name in LAYERS
    ]
    return SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=tuple(layers))


def dated_run(parent: Path, wanted: Dated) -> RunFolder:
    """Write the run below ``parent``."""
    numbers = range(1, len(wanted.slower) + 1)
    day = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=wanted.day)
    id = f"{day:%Y%m%dT%H%M%SZ}-image-classification-{wanted.name}"
    hardware: dict[str, str | int] = {
        "cpu model": wanted.cpu,
        "usable cpus": 2,
        "cpu clock now": wanted.clock,
    }
    with named_run(parent, id, day.isoformat(timespec="seconds"), wanted.settings) as run:
        system_of(hardware, wanted.torch).write(run.folder.system_file)
        records = [
            job(n, **{"data": DATA, "seed": wanted.seed + n - 1, **wanted.job}) for n in numbers
        ]
        run.graph = rebuilt_graph(records[0]) or run.graph
        run.plan(*records, ceilings=_ceilings(wanted))
        for number, slower in zip(numbers, wanted.slower, strict=True):
            reached = wanted.quality
            quality = reached if isinstance(reached, float) else reached[number - 1]
            qualities = (quality - 0.3, quality - 0.05, quality)
            notes = course(*qualities, parameters=run.graph.parameter_count)
            run.attempt(number, 1000.0 * number, *(_slowed(note, slower) for note in notes))
        run.end()
        if not wanted.ends:  # it was resumed and killed
            with run.folder.start_attempt(job=0) as log:
                log.write("start", workload="image-classification")
        score(Contents(run.folder)).write(run.folder.score_file)
    return run.folder


def _slowed(note: Note, slower: float) -> Note:
    kind, facts = note
    if "phases" not in facts:
        return note
    return kind, {**facts, "phases": {k: slower * v for k, v in facts["phases"].items()}}


def _ceilings(wanted: Dated) -> tuple[Measurement, ...]:
    if wanted.memory is None:
        return ()
    measured = Measurement(
        benchmark="memory",
        case="copy",
        precision=None,
        device="cpu",
        unit="B/s",
        value=wanted.memory,
        samples=(0.9 * wanted.memory, wanted.memory, 1.1 * wanted.memory),
    )
    return (measured,)
