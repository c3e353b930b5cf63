"""An MLPerf Training submission: systems/, results/ and benchmarks/ of one organisation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import vflops
from vflops.errors import Hint, UsageError, unknown_name
from vflops.machine.system.mlperf_system import system_desc
from vflops.publish.export.mlperf import BENCHMARK, RESULTS, RULE_SET, WORKLOAD
from vflops.publish.export.mlperf.closed import closed_faults
from vflops.publish.export.mlperf.course import Course
from vflops.publish.export.mlperf.mllog_lines import text_of
from vflops.publish.export.mlperf.power_files import NodePower, node_powers
from vflops.publish.export.mlperf.result import STATUSES, Submitter, result_lines
from vflops.record.files import atomic
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_frameworks import other_frameworks
from vflops.results.score.unscored import require_measurement


@dataclass(frozen=True)
class Entry:
    """A training run to submit, and the contents of its run folder."""

    contents: Contents
    course: Course

    @property
    def name(self) -> str:
        """A name that distinguishes the entry from others."""
        return f"{self.contents.folder.record.id}, seed {self.course.trained.record.seed}"


@dataclass(frozen=True)
class Submission:
    """The written files, with remarks for the user."""

    folder: Path
    results: tuple[Path, ...]
    notes: tuple[str, ...]


def write_submission(
    runs: Sequence[Contents],
    folder: Path,
    *,
    org: str,
    system_name: str | None = None,
    division: str = "open",
    status: str = "research",
) -> Submission:
    """Write the folder that MLPerf's ``package_checker`` reads, with one result per entry."""
    if status not in STATUSES:
        raise unknown_name("status", status, STATUSES)
    for contents in runs:
        require_measurement(contents, "it cannot be submitted")
    _require_new(folder)
    entries, notes = _entries(runs)
    record = _require_one_system(runs)
    system_name = system_name or _system_name(record)
    nodes = max((_node_count(entry.course) for entry in entries), default=1)
    description = system_desc(
        record,
        submitter=org,
        division=division,
        status=STATUSES[status],
        system_name=system_name,
        nodes=nodes,
        framework=", ".join(filter(None, dict.fromkeys(map(other_frameworks, runs)))) or None,
    )
    name = _file_name(system_name)
    submitter = Submitter(org, system_name, division, status)
    result_folder = folder / "results" / name / BENCHMARK
    files = {folder / "systems" / f"{name}.json": atomic.json_text(description)}
    results = []
    for number, entry in enumerate(entries):
        run = entry.contents.folder.record.id
        path = result_folder / f"result_{number}.txt"
        files[path] = text_of(result_lines(entry.course, submitter, run))
        results.append(path)
    power_logs, power_note = _power_logs(entries)
    for number, logs in enumerate(power_logs):
        for node, log in enumerate(logs):
            power = result_folder / "power" / f"result_{number}"
            files[power / f"node_{node}.txt"] = text_of(log.lines)
    code = folder / "benchmarks" / BENCHMARK / "implementations" / "vflops"
    files[code / "README.md"] = _readme(entries)
    for path, text in files.items():
        atomic.make_folder(path.parent)
        atomic.write_text(path, text)
    notes += [*_remarks(entries, description), power_note]
    return Submission(folder, tuple(results), tuple(notes))


def _require_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} already exists, and results of two exports must not mix",
            hint="remove it, or choose another folder: --out FOLDER",
        )


def _entries(runs: Sequence[Contents]) -> tuple[list[Entry], list[str]]:
    """Return the training runs to submit, and notes on why others are left out."""
    entries: list[Entry] = []
    left_out: dict[str, int] = {}
    for contents in runs:
        for job in (*contents.training_jobs, *contents.workers):
            why = None
            if job.record.workload != WORKLOAD:
                why = f"{job.record.workload}: rule set {RULE_SET} has no such benchmark"
            elif job.record.bag is not None:
                why = f"base models of {WORKLOAD}: MLPerf has no ensembles"
            elif job.finished is None:
                why = f"{WORKLOAD}: training did not finish"
            if why is None:
                entries.append(Entry(contents, Course(job, contents.folder.path)))
            else:
                left_out[why] = left_out.get(why, 0) + 1
    notes = [f"{count} left out: {why}" for why, count in left_out.items()]
    if not entries:
        raise UsageError(
            "no result can be submitted to MLPerf: " + ("; ".join(notes) or "nothing was trained"),
            hint=Hint("give runs that trained this", f"vflops run {WORKLOAD} --repeat {RESULTS}"),
        )
    return entries, notes


def _require_one_system(runs: Sequence[Contents]) -> SystemRecord:
    records = [SystemRecord.read(contents.folder.system_file) for contents in runs]
    machines = {record.machine for record in records}
    if len(machines) > 1:
        descriptions = "; ".join(", ".join(machine) for machine in sorted(machines))
        raise UsageError(
            f"the runs come from {len(machines)} systems: {descriptions}",
            hint="export the runs of each system separately",
        )
    return records[0]


def _system_name(record: SystemRecord) -> str:
    """Return a name for the system: its accelerators, or its processor if it has none."""
    accelerators = record.accelerator_counts
    if accelerators:
        return ", ".join(f"{number}x {model}" for model, number in accelerators.items())
    processors = [fact.value for fact in record.matching("hardware", "cpu model") if fact.value]
    return str(processors[0]) if processors else "unnamed system"


def _file_name(name: str) -> str:
    """Return ``name`` as a portable folder name."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:80] or "system"


def _node_count(course: Course) -> int:
    records = [
        node for attempt in course.trained.folders for node in course.trained.nodes_of(attempt)
    ]
    return max((node.nodes for node in records), default=1)


def _power_logs(entries: Iterable[Entry]) -> tuple[list[tuple[NodePower, ...]], str]:
    """Return the power logs of all results and a remark.

    If one result has no power log, none is returned, as the rules require.
    """
    powers_by_result: list[tuple[NodePower, ...]] = []
    for entry in entries:
        powers = node_powers(entry.course)
        if isinstance(powers, str):
            return [], f"no power logs: {entry.name}: {powers}"
        powers_by_result.append(powers)
    includes = {node.includes for nodes in powers_by_result for node in nodes}
    if includes == {("node",)}:
        return powers_by_result, "power logs cover the whole node"
    parts = "; ".join(sorted(", ".join(names) for names in includes))
    return (
        powers_by_result,
        f"power logs cover only: {parts}; MLPerf requires the whole node (vflops power)",
    )


def _remarks(entries: Sequence[Entry], description: dict[str, str]) -> list[str]:
    notes = []
    if len(entries) != RESULTS:
        notes.append(
            f"there are {len(entries)} results, but a submission of {BENCHMARK} needs {RESULTS}: "
            f"vflops run {WORKLOAD} --repeat {RESULTS}"
        )
    for number, entry in enumerate(entries):
        if not entry.course.reached:
            notes.append(f"result_{number} did not reach its target, so its status is aborted")
    if any(entry.course.trained.record.data.synthetic for entry in entries):
        notes.append(
            "the data is synthetic, so this is not an MLPerf result; only the format is MLPerf's"
        )
    if faults := _closed_reasons(entries):
        notes.append("the closed division refuses this: " + "; ".join(faults))
    for key in ("host_processors_per_node", "accelerators_per_node"):
        if not description[key].isdigit():
            notes.append(
                f"result_summarizer needs a number for {key}, but it is {description[key]}"
            )
    return notes


def _closed_reasons(entries: Sequence[Entry]) -> list[str]:
    """Return why the closed division refuses results, each reason once.

    A reason that does not apply to all results names those it applies to.
    """
    by_reason: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        for why in closed_faults(entry.course).values():
            by_reason.setdefault(why, []).append(number)
    reasons = []
    for why, numbers in by_reason.items():
        results = ", ".join(f"result_{number}" for number in numbers)
        reasons.append(why if len(numbers) == len(entries) else f"{why} ({results})")
    return reasons


def _readme(entries: Sequence[Entry]) -> str:
    """Return a README on how to repeat the training runs."""
    first = entries[0]
    job, record = first.course.trained.record, first.contents.folder.record
    settings = json.dumps(job.settings, indent=2, sort_keys=True)
    return (
        f"# {WORKLOAD} by vflops {record.versions.get('vflops', vflops.__version__)}\n\n"
        f"    pip install vflops\n    vflops run {WORKLOAD} --profile {record.settings.profile}\n\n"
        f"Rule set {RULE_SET}. Training settings:\n\n```json\n{settings}\n```\n\n"
        "Results:\n\n"
        + "".join(f"- result_{number}: {entry.name}\n" for number, entry in enumerate(entries))
    )
