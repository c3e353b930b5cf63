"""The figures of points, from stored run folders of released versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.golden_runs import FOLDER, extracted
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.point_figures import EnsembleFigures, Figures
from vflops.studies.scale.scale_result import Kind, Scale, Size

WORKLOAD = "image-classification"


def stored(name: str, size: Size, parent: Path) -> Scale:
    """Return an experiment whose only point is a stored run."""
    folder = RunFolder.open(extracted(FOLDER / f"{name}.tar.xz", parent / str(size)))
    for path in folder.result_files:  # a stored run has no report
        path.touch()
    kind: Kind = "workers" if name == "search" else "weak"
    return Experiment(
        parent, folder.record.workload, axis_of(kind), (size,), folder.record.settings
    ).result()


def figures(found: Scale) -> Figures:
    (point,) = found.points
    assert point.figures
    return point.figures


def test_two_ranks_sent_what_the_loopback_interface_counted(tmp_path: Path) -> None:
    found = figures(stored("repeats-on-two-ranks", Size(1, 2), tmp_path))
    assert isinstance(found, EnsembleFigures)
    jobs = Contents(RunFolder.open(next((tmp_path / "1x2").iterdir()))).training_jobs
    steps = [job.finished.step for job in jobs if job.finished]
    assert (steps, found.exchanged_bytes) == ([48, 48], 262752)
    # Two repeats with 48 steps each; the mean of their rates is above the rate of the mean time.
    assert found.sent_near_b_per_s == pytest.approx(262752 * 48 / 1.6285, rel=0.2)
    assert found.sent_near_b_per_s and found.sent_near_b_per_s > 262752 * 48 / 1.6285
    assert found.sent_far_b_per_s == 0
    # A sample a second in 1.6 s of training: the edges are interpolated.
    assert found.usage and found.usage.within_b_per_s
    assert found.usage.within_b_per_s == pytest.approx(found.sent_near_b_per_s, rel=0.2)
    assert found.samples_per_s == pytest.approx(1143.6, abs=0.1)


def test_an_ensemble_on_a_cpu_has_processors_and_no_accelerator(tmp_path: Path) -> None:
    result = stored("0.2.0/ensemble", Size(2, 1), tmp_path)
    found = figures(result)
    assert isinstance(found, EnsembleFigures)
    assert found.usage
    assert (found.usage.hosts, found.usage.accelerators) == (1, 0)
    assert found.usage.processors == pytest.approx(98.8, abs=0.1)
    assert found.usage.missing == dict.fromkeys(("utilisation", "memory_b"), "no accelerator")
    ceilings = {(c.benchmark, c.case): c for c in found.ceilings}
    cases = ("forward", "input-gradient", "weight-gradient")
    assert list(ceilings) == [("gemm", "peak"), *(("convolution", case) for case in cases)]
    assert ceilings["convolution", "forward"].flops == pytest.approx(220.935e9, rel=1e-5)
    assert (ceilings["convolution", "forward"].doubt or "").startswith("only 4 of 54 settings")
    assert ceilings["gemm", "peak"].doubt is None
    assert found.sent_near_b_per_s is None
    assert axis_of("weak").usage_table(result)[1][:4] == ("2 × 1", "1", "99 %", "326 MB")


def test_a_search_has_the_usage_of_its_workers(tmp_path: Path) -> None:
    result = stored("search", Size(2, 1), tmp_path)
    usage = figures(result).usage
    assert usage and usage.hosts == 1
    assert usage.processors and 0 < usage.processors <= 100
    curves = {curve.id for curve in axis_of("workers").curves(result)}
    assert {"utilisation", "memory"} <= curves
    assert axis_of("workers").usage_table(result)[1][0] == "2 workers"
