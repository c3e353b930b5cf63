"""Forged runs with a second attempt, with more ranks, or with the ceilings of other machines."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.support.forged_runs import START_S, Forger
from tests.support.forged_times import H200, renamed_device
from tests.support.forgeries import Break, changed, graph_of_settings
from tests.support.sample_parts import measured
from tests.support.trained_runs import averaged
from vflops.record.folder import file_hash

Line = dict[str, Any]
OWN_STATE, OTHER_STATE = "a" * 64, "b" * 64
"""The hash of the checkpoint of a run, and that of another one."""
_BETWEEN_S = 10.0
_CPUS = 512


def resumed(run: Forger) -> None:
    """The first training in two attempts: the second resumed from the checkpoint of the first."""
    path = run.attempt(1) / "events.jsonl"
    log = run.logs[path]
    cut = len(log) // 2
    last = log[cut - 1]
    state = {"step": last["data"]["step"], "sha256": OWN_STATE}
    file = f"step-{state['step']:09d}.state"
    commitment = {**state, "file": file, "size_bytes": 9, "kept": False, "loss": 1.0}
    begun = {**state, "file": file, "samples": last["data"]["samples"]}
    second = [
        {**last, "kind": "job", "data": log[0]["data"]},
        {**last, "kind": "resumed", "data": begun},
        *log[cut:],
    ]
    run.logs[path] = [*log[:cut], {**last, "kind": "checkpoint", "data": commitment}]
    other = run.folder.attempt_folder(1, 1) / "events.jsonl"
    other.parent.mkdir()
    run.logs[other] = [_later(line, last["data"]["phases"]) for line in second]
    for line in run.lines("job-trained"):
        if line["data"]["job"] == 1:
            line["data"].update(attempt=1, telemetry_sha256=None)


def kept_at(step: int) -> Break:
    """A checkpoint of the first training that is kept after a step of its owner's choice."""

    def change(run: Forger) -> None:
        log = run.logs[run.attempt(1) / "events.jsonl"]
        state = {"step": step, "sha256": OWN_STATE, "loss": 1.0, "size_bytes": 9, "kept": True}
        data = {**state, "file": f"step-{step:09d}.state"}
        log.insert(-1, {**log[-1], "kind": "checkpoint", "data": data})

    return change


def _later(line: Line, before: dict[str, float]) -> Line:
    """A line of the next attempt, whose phases begin anew."""
    line = copy.deepcopy(line)
    line["time_s"] += _BETWEEN_S
    utc = datetime.fromisoformat(line["utc"]) + timedelta(seconds=_BETWEEN_S)
    line["utc"] = utc.isoformat(timespec="milliseconds")
    phases = line["data"].get("phases", {})
    phases.update({name: time_s - before[name] for name, time_s in phases.items()})
    phases.update({"start-up": START_S} if phases else {})
    return line


def with_ranks(ranks: int) -> Break:
    """All trainings by several ranks, with the graph and the traffic that follow from it."""

    def change(run: Forger) -> None:
        run.settings(lambda data: data["train"].update(ranks=ranks))
        run.records(lambda data: data.update(ranks=ranks))
        changed("job", ranks=ranks)(run)
        graph_of_settings()(run)
        for log in run.logs.values():
            told = {line["kind"]: line["data"] for line in log}
            if "finished" in told:
                ((kind, data),) = averaged(told)
                log.insert(-1, {**log[-1], "kind": kind, "data": data})

    return change


def on_h200(run: Forger) -> None:
    """The same trainings in bf16, on a device with a data sheet."""
    renamed_device(H200)(run)
    run.settings(lambda data: data["train"].update(precision="mixed-bf16"))
    changed("job", precision="mixed-bf16", ceiling_precision="bf16")(run)
    for line in run.lines("measurement"):
        if line["data"]["unit"] == "FLOPS" and line["data"]["precision"] == "fp32":
            line["data"].update(precision="bf16", value=9e14, samples=[9e14] * 3)
    for line in run.lines("plan"):
        keys = line["data"]["measurements"]
        line["data"]["measurements"] = [
            [*key[:2], "bf16" if key[2] == "fp32" else key[2]] for key in keys
        ]


def with_torch(version: str) -> Break:
    """A description of the system that names a version of torch."""

    def change(run: Forger) -> None:
        path = run.folder.system_file
        data = json.loads(path.read_text())
        layer = next(layer for layer in data["layers"] if layer["name"] == "framework")
        fact = {"name": "torch", "value": version, "unit": None, "source": "test", "reason": None}
        layer["facts"] = [fact]
        path.write_text(json.dumps(data))
        changed("described", sha256=file_hash(path))(run)

    return change


def with_ceilings(flops: float, names: Sequence[str] = ("gemm", "convolution")) -> Break:
    """Ceilings of a run that measured none, on a machine with enough processors for them."""

    def change(run: Forger) -> None:
        path = run.folder.system_file
        data = json.loads(path.read_text())
        for fact in data["layers"][0]["facts"]:
            fact.update({"value": _CPUS} if fact["name"] == "usable cpus" else {})
        path.write_text(json.dumps(data))
        changed("described", sha256=file_hash(path))(run)
        (plan,) = run.lines("plan")
        log = run.logs[run.attempt(0) / "events.jsonl"]
        items = [measured(name, "peak", "fp32", flops) for name in names]
        plan["data"]["measurements"] = [list(item.key) for item in items]
        place = log.index(plan) + 1
        notes = [("measurement", item.model_dump(mode="json")) for item in items]
        log[place:place] = [
            {**plan, "kind": kind, "data": data}
            for kind, data in (*notes, ("load", {"others_share": 0.01}))
        ]

    return change
