"""How run folders are altered, one thing at a time, and what the rules then say of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.cluster_runs import cluster_run
from tests.support.forged_runs import MODELS, POWER_W, Forger, search_run, trained_run
from tests.support.trained_runs import WORKLOAD, trained_graph
from tests.support.weather_runs import weather_run
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import PROGRESS_EVENTS
from vflops.results.check import graph_rules
from vflops.results.check.checking import check
from vflops.results.check.findings import Findings
from vflops.results.rebuild.rebuilding import rebuilt_graph
from vflops.workloads.automl.architecture.starting_networks import small

Break = Callable[[Forger], object]

BUILDERS: dict[str, Callable[[Path, pytest.MonkeyPatch], Path]] = {
    "one model": trained_run,
    "ensembles": lambda place, patch: trained_run(place, patch, models=MODELS),
    "cluster": cluster_run,
    "search": search_run,
    "short search": lambda place, patch: search_run(place, patch, scale=10),
    "poor search": lambda place, patch: search_run(place, patch, best=0.65),
    "no search": lambda place, patch: search_run(place, patch, second={"morphs": ()}),
    "hasty search": lambda place, patch: search_run(place, patch, second={"patience": 1}),
    "search from another network": lambda place, patch: search_run(
        place, patch, first=small("tiny", (3, 8, 8))
    ),
    "weather": weather_run,
    "ResNet-50": lambda place, patch: _with_its_graph(trained_run(place, patch)),
    "ResNet-50 ensembles": lambda place, patch: _with_its_graph(
        trained_run(place, patch, models=MODELS)
    ),
    "search tuned early": lambda place, patch: search_run(place, patch, second={"tuned": True}),
}
GoodRun = Callable[[str], Path]


def good_runs(place: Path) -> GoodRun:
    """A good run of each kind, made under ``place`` when it is first asked for."""

    @cache
    def find(name: str) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            return BUILDERS[name](place / name.replace(" ", "-"), patch)

    return find


def judged(good: Path, place: Path, rules: str, harm: Break) -> Findings:
    """A copy of a good run, harmed, by a rule set."""
    copy = place / good.name
    shutil.copytree(good, copy)
    forger = Forger(copy)
    harm(forger)
    with small_graphs():
        return check(Contents(RunFolder.open(forger.sealed().path)), rules)


def small_graphs() -> AbstractContextManager[object]:
    """Meanwhile, the graphs of the good runs of this module count as those of their settings."""
    return patch.object(graph_rules, "rebuilt_graph", _rebuilt)


def _rebuilt(record: JobRecord) -> Graph | None:
    """The small graph of handmade runs, so that their operations can be worked out on paper."""
    handmade = record.workload == WORKLOAD and record.data.path in ("/data", "/images")
    return trained_graph() if handmade else rebuilt_graph(record)


def changed(kind: str, job: int | None = None, **facts: Any) -> Break:
    """Other data in every event of a kind."""

    def change(run: Forger) -> None:
        lines = run.lines(kind, job)
        assert lines, kind
        for line in lines:
            line["data"].update(facts)

    return change


def first(kind: str, job: int | None = None, **facts: Any) -> Break:
    """Other data in the first event of a kind."""
    return lambda run: run.lines(kind, job)[0]["data"].update(facts)


def measured(benchmark: str, **facts: Any) -> Break:
    """Other figures of a ceiling; its samples follow its value."""

    def change(run: Forger) -> None:
        for line in run.lines("measurement"):
            if line["data"]["benchmark"] == benchmark and line["data"]["value"] is not None:
                line["data"].update(facts)
                if "value" in facts:
                    line["data"]["samples"] = [facts["value"]] * 3

    return change


def unmeasured(benchmark: str, *, planned: bool) -> Break:
    """No measurement of a benchmark, and no plan of one unless ``planned``."""

    def change(run: Forger) -> None:
        run.drop(lambda line: line["data"].get("benchmark") != benchmark)
        for line in run.lines("plan") if not planned else ():
            keys = line["data"]["measurements"]
            line["data"]["measurements"] = [key for key in keys if key[0] != benchmark]

    return change


def in_job(section: str | None = None, /, job: int = 1, **facts: Any) -> Break:
    """Other facts in the record of a job; settings change in all jobs and in the run."""
    if section == "settings":
        return lambda run: run.settings(lambda data: data.update(facts))
    return lambda run: run.record(
        job, lambda data: (data[section] if section else data).update(facts)
    )


def with_graph(text: str) -> Break:
    """Another graph, which counts as the one that was counted."""

    def change(run: Forger) -> None:
        (line,) = run.lines("counted")
        path = run.folder.graph_file(line["data"]["model"])
        path.write_text(text)
        graph = Graph.read(path)
        line["data"].update(sha256=file_hash(path), batch=graph.batch)
        for started in run.lines("job"):
            started["data"].update(parameters=graph.parameter_count)

    return change


def graph_of_settings(**changed: Any) -> Break:
    """The graph of other settings than those that are recorded."""

    def change(run: Forger) -> None:
        record = JobRecord.read(run.folder.job_file(1))
        settings = {**record.settings, **changed}
        graph = rebuilt_graph(record.model_copy(update={"settings": settings}))
        assert graph is not None
        with_graph(graph.to_json())(run)

    return change


def _with_its_graph(path: Path) -> Path:
    """The run with the graph of its settings, on a machine that trains ResNet-50 in an hour."""
    forger = Forger(path)
    together(
        graph_of_settings(), measured("gemm", value=2e16), measured("convolution", value=1.5e16)
    )(forger)
    return forger.sealed().path


def hurried(run: Forger) -> None:
    """The first training took half of its time, in all that its log says."""
    (log,) = (log for path, log in run.logs.items() if path.parent == run.attempt(1))
    began_s = log[0]["time_s"]
    for line in log:
        saved_s = (line["time_s"] - began_s) / 2
        utc = datetime.fromisoformat(line["utc"]) - timedelta(seconds=saved_s)
        line.update(time_s=line["time_s"] - saved_s, utc=utc.isoformat())
    for line in (line for kind in PROGRESS_EVENTS for line in run.lines(kind, 1)):
        phases = line["data"]["phases"]
        phases.update({name: spent_s / 2 for name, spent_s in phases.items()})


def replay_of(change: Callable[[dict[str, Any]], object]) -> Break:
    """The run as a replay of its own ledger, which is then changed and pinned as it is."""

    def forge(run: Forger) -> None:
        path = run.folder.path / "ledger.json"
        data = json.loads(path.read_text())
        change(data)
        path.with_name("ledger-replayed.json").write_text(json.dumps(data))
        run.settings(lambda data: data["search"].update(ledger=str(path)))

    return forge


def later(harm: Callable[[RunFolder], object]) -> Break:
    """Done to the sealed folder, and not made good."""
    return lambda run: run.after.append(harm)


def edited(name: str, old: str, new: str) -> Break:
    """A file of the sealed folder with other words."""

    def edit(folder: RunFolder) -> None:
        path = folder.path / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return later(edit)


def together(*breaks: Break) -> Break:
    return lambda run: [change(run) for change in breaks]


def gap(run: Forger) -> None:
    """No sample in half of an attempt."""
    path = run.attempt(1) / "telemetry.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:15], *lines[45:]]))


def power(power_w: float) -> Break:
    """Another power than that of the counter."""

    def change(run: Forger) -> None:
        path = run.attempt(1) / "telemetry.jsonl"
        text = path.read_text()
        path.write_text(text.replace(f'"values":[{POWER_W},', f'"values":[{power_w},'))

    return change
