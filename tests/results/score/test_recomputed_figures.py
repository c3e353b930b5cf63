"""Every ratio in score.json is the quotient of numbers in score.json, to the last bit."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden_runs import GOLDEN, extracted, name_of
from tests.support.node_site import Site, model, sample, series
from vflops.metrics import ops_of_samples
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import PHASES, WORK_PHASES
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score

Ratio = tuple[str, Any, Any]
"""The name of a figure, the figure, and what its numbers give."""


def ops(batch_ops: dict[str, int], part: str, samples: int) -> int:
    """Return the operations of ``samples`` samples, by exact arithmetic."""
    return math.floor(Fraction(batch_ops[part] * samples, batch_ops["batch"]) + Fraction(1, 2))


def in_order(values: Any) -> Any:
    return reduce(add, values, 0)


def training_ratios(training: dict[str, Any]) -> Iterator[Ratio]:
    work, speed, phases = training["work"], training["speed"], training["phases"]
    quality, mfu, power = training["quality"], training["mfu"], training["power"]
    work_s, wall_s = training["work_s"], training["wall_s"]
    yield "work_s", work_s, in_order(phases[name] for name in WORK_PHASES)
    yield "wall_s", wall_s, in_order(phases[name] for name in PHASES)
    exact = work["batch_ops"]
    for part in ("forward", "total"):
        yield f"ops_{part}", work[f"ops_{part}"], exact[part] // exact["batch"]
    yield "ops_training", speed["ops_training"], ops(exact, "total", training["samples_trained"])
    evaluation = ops(exact, "forward", training["samples_evaluated"])
    yield "ops_evaluation", speed["ops_evaluation"], evaluation
    yield "ops_timed", speed["ops_timed"], ops(exact, "total", speed["samples_timed"])
    yield "samples_per_s", speed["samples_per_s"], speed["samples_timed"] / work_s
    yield "flops", speed["flops"], speed["ops_timed"] / work_s
    yield "evaluation", speed["flops_evaluation"], evaluation / phases["evaluation"]
    yield "whole", speed["flops_whole"], (speed["ops_training"] + evaluation) / wall_s
    factor = (quality["achieved"] / quality["target"]) ** quality["exponent"]
    yield "penalty", quality["penalty"], factor
    yield "vflops", speed["vflops"], speed["flops"] * factor
    yield "vflops_capped", speed["vflops_capped"], speed["flops"] * min(factor, 1.0)
    if mfu["value"] is not None:
        executed = work["batch_ops_executed"] or exact
        yield "mfu ops", mfu["ops_timed"], ops(executed, "total", speed["samples_timed"])
        yield "mfu flops", mfu["flops"], mfu["ops_timed"] / work_s
        yield "mfu", mfu["value"], mfu["flops"] / mfu["ceiling_flops"]
    if power["power_w"] is not None:
        yield "per watt", training["vflops_per_watt"], speed["vflops"] / power["power_w"]
        capped = speed["vflops_capped"] / power["power_w"]
        yield "capped per watt", training["vflops_capped_per_watt"], capped
    if training["scale"]:
        scale = training["scale"]
        yield "apc", scale["apc"], scale["models"] * ops(exact, "total", training["batch"])


def ensemble_ratios(ensemble: dict[str, Any], by_job: dict[int, Any]) -> Iterator[Ratio]:
    members = [by_job[job] for job in ensemble["jobs"]]
    total = sum(member["speed"]["ops_training"] for member in members)
    yield "ops", ensemble["ops_training"], total
    yield "flops", ensemble["flops"], total / ensemble["window_s"]
    yield "vflops", ensemble["vflops"], ensemble["flops"] * ensemble["penalty"]
    if ensemble["flops_epoch"] is not None:
        yield "epoch", ensemble["flops_epoch"], ensemble["ops_epoch"] / ensemble["epoch_s"]
    power_w = ensemble["power"]["power_w"]
    if power_w is not None:
        energies_j = [node["power"]["power_w"] * node["trained_s"] for node in ensemble["nodes"]]
        yield "power", power_w, math.fsum(energies_j) / ensemble["window_s"]
        yield "per watt", ensemble["vflops_per_watt"], ensemble["vflops"] / power_w
        capped = ensemble["flops"] * min(ensemble["penalty"], 1.0) / power_w
        yield "capped per watt", ensemble["vflops_capped_per_watt"], capped


def search_ratios(search: dict[str, Any]) -> Iterator[Ratio]:
    yield "ops", search["ops"], sum(item["ops"] for item in search["candidates"])
    for moment in search["moments"]:
        yield "ops_per_s", moment["ops_per_s"], moment["ops"] / moment["time_s"]
        if moment["error"]:
            score = -math.log(moment["error"]) * moment["ops_per_s"]
            yield "regulated", moment["regulated"], score
    phases = search["phases"]
    time_s = search["duration_s"] * search["workers"]
    yield "idle", search["idle_share"], (phases["idle"] + phases["building"]) / time_s


def compare(folder: RunFolder) -> set[str]:
    """Recompute every ratio in the score of a run; return the names of those that were there."""
    written = json.loads(score(Contents(RunFolder.open(folder.path))).to_json())
    by_job = {training["job"]: training for training in written["trainings"]}
    ratios = [ratio for training in by_job.values() for ratio in training_ratios(training)]
    ratios += [r for ensemble in written["ensembles"] for r in ensemble_ratios(ensemble, by_job)]
    ratios += [ratio for search in written["searches"] for ratio in search_ratios(search)]
    for name, value, expected in ratios:
        assert (type(value), value) == (type(expected), expected), name
    return {name for name, _, _ in ratios}


@pytest.mark.parametrize("archive", GOLDEN, ids=name_of)
def test_figures_of_a_stored_run_follow_from_its_score(archive: Path, tmp_path: Path) -> None:
    assert compare(RunFolder.open(extracted(archive, tmp_path)))


def test_figures_of_a_run_with_power_and_ceilings_follow_from_its_score(
    trained_folder: RunFolder,
) -> None:
    assert {"flops", "vflops", "mfu", "per watt", "capped per watt", "apc"} <= compare(
        trained_folder
    )


def test_figures_of_nodes_that_train_for_other_times_follow_from_the_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, monkeypatch)
    site.run.plan(model(1), model(2))
    package = series("package0.energy", "J", "counter")
    for number, start_s, host in ((1, 1000.0, "a"), (2, 1001.0000003, "b")):
        place = site.trains(number, start_s, host)
        sample(place, start_s, 60, [(package, 100.0)])
    site.ensemble(1, 2)
    assert {"power", "per watt", "epoch"} <= compare(site.run.folder)


def test_operations_that_occur_once_per_batch_are_not_lost() -> None:
    assert ops_of_samples(samples=64, batch_ops=1003, batch=32) == 2006
    assert ops_of_samples(samples=1, batch_ops=1003, batch=32) == 31
    assert ops_of_samples(samples=16, batch_ops=1003, batch=32) == 502  # 501.5
    assert ops_of_samples(samples=0, batch_ops=1003, batch=32) == 0
