"""Run folders whose clocks, phases and meters are forged, so that they agree with each other."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from tests.support.forged_runs import Forger
from tests.support.forgeries import Break, changed
from vflops.record.folder import file_hash

H200 = "NVIDIA H200"
Line = dict[str, Any]


def clocks_times(factor: float) -> Break:
    """Every clock of the run, with the phases and the counters of energy that follow from it."""

    def change(run: Forger) -> None:
        zero_s = min(line["time_s"] for log in run.logs.values() for line in log)
        zero = min(datetime.fromisoformat(line["utc"]) for log in run.logs.values() for line in log)

        def scale(line: Line) -> None:
            line["time_s"] = round(zero_s + factor * (line["time_s"] - zero_s), 6)
            since = datetime.fromisoformat(line["utc"]) - zero
            line["utc"] = (zero + factor * since).isoformat(timespec="milliseconds")

        for line in (line for log in run.logs.values() for line in log):
            scale(line)
            phases = line["data"].get("phases", {})
            phases.update({name: factor * time_s for name, time_s in phases.items()})
        for path in run.folder.path.glob("jobs/*/*/telemetry.jsonl"):
            header, *samples = (json.loads(line) for line in path.read_text().splitlines())
            header["interval_s"] *= factor
            counters = [series["kind"] == "counter" for series in header["series"]]
            for sample in samples:
                scale(sample)
                sample["values"] = [
                    factor * value if is_counter and value is not None else value
                    for is_counter, value in zip(counters, sample["values"], strict=True)
                ]
            path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *samples)))

    return change


def timed_states(run: Forger) -> None:
    """A commitment after each report of progress, with the time at which its state was reached."""
    for log in run.logs.values():
        for point in [line for line in log if line["kind"] == "progress"]:
            names = ("step", "phases", "samples_compiling")
            data = {name: point["data"][name] for name in names if name in point["data"]}
            data["phases"] = dict(data["phases"])
            data |= {"sha256": f"{data['step']:064x}", "loss": 1.0}
            log.insert(log.index(point) + 1, {**point, "kind": "commitment", "data": data})


def progress_times(factor: float) -> Break:
    """Every clock of the run but the times of committed states."""

    def change(run: Forger) -> None:
        states = [line["data"] for line in run.lines("commitment") if "phases" in line["data"]]
        true = [dict(state["phases"]) for state in states]
        clocks_times(factor)(run)
        for state, phases in zip(states, true, strict=True):
            state["phases"] = phases

    return change


def readings_times(factor: float) -> Break:
    """All readings of power and energy."""

    def change(run: Forger) -> None:
        for path in run.folder.path.glob("jobs/*/*/telemetry.jsonl"):
            header, *samples = (json.loads(line) for line in path.read_text().splitlines())
            for sample in samples:
                sample["values"] = [factor * value for value in sample["values"]]
            path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *samples)))

    return change


def moved_time(to: str, share: float, *, after_step: int = 0) -> Break:
    """A share of the time of training after a step, recorded as another phase."""

    def change(run: Forger) -> None:
        for log in run.logs.values():
            points = [line["data"] for line in log if "phases" in line["data"]]
            first_s = max(
                (p["phases"]["training"] for p in points if p["step"] <= after_step), default=0.0
            )
            for phases in (point["phases"] for point in points if point["step"] > after_step):
                moved_s = share * (phases["training"] - first_s)
                phases["training"] -= moved_s
                phases[to] += moved_s

    return change


def moved_by(days: int) -> Break:
    """The whole run, on another day."""

    def change(run: Forger) -> None:
        for line in (line for log in run.logs.values() for line in log):
            line["utc"] = (datetime.fromisoformat(line["utc"]) + timedelta(days)).isoformat()

    return change


def renamed_device(name: str) -> Break:
    """The accelerator under another name, wherever it is named."""

    def change(run: Forger) -> None:
        path = run.folder.system_file
        path.write_text(path.read_text().replace("Test GPU", name))
        changed("described", sha256=file_hash(path))(run)
        changed("job", device_name=name)(run)

    return change


SHARES = ("busy", "others", "stolen")
"""What is read of the processors."""


def busy(
    job: int, busy: float, others: float, samples: int | None = None, stolen: float = 0.0
) -> Break:
    """Readings of the processors, beside those of the accelerator."""

    def change(run: Forger) -> None:
        path = run.attempt(job) / "telemetry.jsonl"
        header, *lines = (json.loads(line) for line in path.read_text().splitlines())
        common = {"unit": "%", "kind": "gauge", "part": "node", "source": "test", "title": "cpu"}
        header["series"] += [{"id": f"cpu.{name}", **common} for name in SHARES]
        for number, line in enumerate(lines):
            read = samples is None or number < samples
            line["values"] += [busy, others, stolen] if read else [None] * len(SHARES)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *lines)))

    return change


def quieter(run: Forger) -> None:
    """No other programs in the readings, and none while ceilings were measured."""
    for line in run.lines("load"):
        line["data"]["others_share"] = 0.01
    for path in run.folder.path.glob("jobs/*/*/telemetry.jsonl"):
        header, *lines = (json.loads(line) for line in path.read_text().splitlines())
        ids = [series["id"] for series in header["series"]]
        if "cpu.others" in ids:
            for line in lines:
                line["values"][ids.index("cpu.others")] = 1.0
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *lines)))
