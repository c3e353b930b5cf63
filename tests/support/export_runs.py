"""Runs for the exports: seeds of an image classification, and a described system."""

from __future__ import annotations

from typing import Any

from tests.support.trained_runs import HandmadeRun, course, job, write_telemetry
from vflops.record.folder import RunFolder
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord
from vflops.record.readout.contents import Contents

QUALITIES = (0.4, 0.85, 0.88)
"""The qualities of three epochs; the target 0.8 is reached after the second."""


def describe(folder: RunFolder, model: str = "Test GPU") -> None:
    """Write a system with the numbers that MLPerf's summary needs."""
    values = {"cpu model": "Test CPU", "usable cpus": 2, "cpu sockets": 2, "accelerators": 2}
    facts = [Fact(name=name, value=value, source="test") for name, value in values.items()]
    facts.append(Fact(name="accelerator 0 model", value=model, source="test"))
    layers = tuple(
        Layer(name=name, facts=tuple(facts) if name == "hardware" else ()) for name in LAYERS
    )
    SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=layers).write(folder.system_file)


def repeated(
    run: HandmadeRun,
    *qualities: tuple[float, ...],
    power: bool = True,
    **facts: Any,
) -> Contents:
    """Return a complete run with one training per sequence of qualities, with telemetry."""
    describe(run.folder)
    records = [job(number, **facts) for number in range(1, len(qualities) + 1)]
    run.plan(*records)
    for record, reached in zip(records, qualities, strict=True):
        began_s = 1000.0 * record.job
        write_telemetry(
            run.attempt(record.job, began_s, *course(*reached)), began_s, 60, power=power
        )
    run.end()
    return Contents(run.folder)
