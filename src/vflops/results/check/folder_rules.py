"""Rules for the run folder: it is complete and unchanged, and its score follows from it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import vflops
from vflops.record.files.read_once import is_file, read_bytes
from vflops.record.files.strict_json import parse_json
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import Described
from vflops.record.readout.contents import Contents
from vflops.results.check.locations import RUN_LOG
from vflops.results.check.rule import Outcome
from vflops.results.score.scoring import score_text
from vflops.units import count

_MAX_NAMED = 3
"""The number of altered files that the evidence names."""
_REDEFINED = frozenset({"mfu", "deviations"})
"""What earlier versions computed otherwise: MFU came from the scored operations, and deviations
from AIPerf had other words."""
_FROM_OPERATIONS = frozenset(
    {
        *("ops", "ops_training", "ops_evaluation", "apc"),
        *("flops", "flops_evaluation", "flops_whole", "flops_epoch"),
        *("vflops", "vflops_capped", "vflops_per_watt", "vflops_capped_per_watt"),
        *("ops_per_s", "last_ops_per_s", "ops_per_watt", "regulated", "last_regulated"),
    }
)
"""Figures that versions before 0.3 based on operations per sample, which they rounded down."""
_OPERATIONS_ROUNDING = 1e-5
"""Their largest relative error: one operation of 100,000, fewer than any network in use has."""
_TIME_ROUNDING_S = {"covered_s": 1e-3}
"""The rounding of times in versions before 0.3, by name; that of others is 1 µs."""


class Rounding(NamedTuple):
    """The largest difference between a figure and its rounded value."""

    relative: float = 0.0
    absolute: float = 0.0


EXACT = Rounding()


def check_complete(contents: Contents) -> Outcome:
    """Fail unless the log of the run has its end event."""
    state = contents.state
    if state.complete:
        return Outcome("pass", "the log records the end of the run")
    logs = contents.history.jobs.get(0, ())
    last = next((log.events[-1].source for log in reversed(logs) if log.events), RUN_LOG)
    return Outcome("fail", str(state.reason), last)


def check_hash_chain(contents: Contents) -> Outcome:
    """Fail if a line of a log does not match the hash chain."""
    logs = contents.history.logs
    faults = [fault for log in logs for fault in log.faults]
    if faults:
        where, _, evidence = faults[0].partition(": ")
        return Outcome("fail", "; ".join([evidence, *faults[1:3]]), where)
    for job_logs in contents.history.jobs.values():
        if (
            job_logs and job_logs[-1].torn
        ):  # an earlier attempt may be torn, because the next one repaired it
            return Outcome(
                "fail", "the last line was cut off while it was written", job_logs[-1].torn
            )
    lines = sum(len(log.events) for log in logs)
    return Outcome("pass", f"{count(lines, 'line')}, each chained to the previous one")


def check_system(contents: Contents) -> Outcome:
    """Fail unless ``system.json`` is the description that this run wrote."""
    record = contents.read(SystemRecord, contents.folder.system_file)
    described = contents.history.events("described")
    if not described:
        evidence = "the log does not record the description of the system"
        return Outcome("cannot tell", evidence, RUN_LOG)
    if described[-1].payload(Described).sha256 != contents.hash(contents.folder.system_file):
        return Outcome(
            "fail",
            "the description of the system is not the one that this run wrote",
            "system.json",
        )
    facts = [fact for layer in record.layers for fact in layer.facts]
    known = sum(fact.value is not None for fact in facts)
    return Outcome("pass", f"{len(record.layers)} layers, {known} of {len(facts)} facts read")


def check_score(contents: Contents) -> Outcome:
    """Fail unless ``score.json`` follows from the record, byte for byte.

    A run of an earlier version may keep its score, as long as each value in it is the one that this
    version computes, except for the rounding of times and of operations per sample, and for whether
    a task is closed, which depends on the profiles of the version that scores.
    """
    path = contents.folder.score_file
    if not is_file(path):
        return Outcome("fail", "the score is missing", path.name)
    computed = contents.once(score_text)
    if read_bytes(path) == computed.encode():
        return Outcome("pass", "score.json follows from the record, byte for byte")
    version = contents.folder.record.versions.get("vflops")
    if _is_earlier(version) and _contains(
        _as_before(json.loads(computed)), _without_tasks(_read_json(path))
    ):
        evidence = f"the values in score.json, by vflops {version}, follow from the record"
        return Outcome("pass", f"{evidence}; vflops score adds those of this version")
    return Outcome("fail", "the score does not follow from the record", path.name)


def _is_earlier(version: str | None) -> bool:
    """Whether ``version`` is a release before this one, such as 0.1.0."""
    if version is None or not re.fullmatch(r"\d+(\.\d+)*", version):
        return False
    return _release(version) < _release(vflops.__version__)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _as_before(score: dict[str, Any]) -> dict[str, Any]:
    """Return a score without the means over ensembles, which versions before 0.3 did not have."""
    return {**score, "repeats": [repeat for repeat in score["repeats"] if not repeat["models"]]}


def _without_tasks(score: Any) -> Any:
    """Return a score without the fields that say whether tasks are closed."""
    if isinstance(score, dict):
        return {
            key: _without_tasks(value)
            for key, value in score.items()
            if key not in ("task", "tasks")
        }
    return [_without_tasks(item) for item in score] if isinstance(score, list) else score


def _read_json(path: Path) -> Any:
    try:
        return parse_json(read_bytes(path))
    except (OSError, ValueError):
        return None


def _contains(computed: Any, recorded: Any, rounding: Rounding = EXACT) -> bool:
    """Whether ``computed`` has every value of ``recorded``, whose objects may have fewer fields.

    Numbers may differ by ``rounding``.
    """
    if isinstance(recorded, dict) and isinstance(computed, dict):
        return all(
            name in computed
            and (
                name in _REDEFINED or _contains(computed[name], value, _rounding(name) or rounding)
            )
            for name, value in recorded.items()
        )
    if isinstance(recorded, list) and isinstance(computed, list):
        return len(recorded) == len(computed) and all(
            _contains(*pair, rounding) for pair in zip(computed, recorded, strict=True)
        )
    if type(recorded) is not type(computed):
        return False
    if isinstance(recorded, int | float) and not isinstance(recorded, bool):
        return math.isclose(
            computed, recorded, rel_tol=rounding.relative, abs_tol=rounding.absolute
        )
    return bool(recorded == computed)


def _rounding(name: str) -> Rounding | None:
    """Return how far a figure of an earlier version may differ; None if its name does not say."""
    if name in _FROM_OPERATIONS:
        return Rounding(relative=_OPERATIONS_ROUNDING)
    if name == "power_w":  # an ensemble's is a mean over rounded times
        return Rounding(relative=1e-6)
    if name == "phases" or (name.endswith("_s") and not name.endswith("_per_s")):
        return Rounding(absolute=_TIME_ROUNDING_S.get(name, 1e-6))
    return None


def check_manifest(contents: Contents) -> Outcome:
    """Fail if a recorded file contradicts the manifest.

    The evidence is the same with a valid manifest and without one: the manifest pins the findings,
    so they must not depend on it. ``vflops verify`` reports whether there is one and who signed it.
    """
    from vflops.results.evidence.integrity import FolderIntegrity, altered_record

    manifest, id = contents.once(FolderIntegrity.of).manifest, contents.folder.record.id
    if manifest is not None and manifest.run != id:
        return Outcome(
            "fail",
            f"the manifest belongs to run {manifest.run}, but run.json to run {id}",
            "manifest.json",
        )
    altered = altered_record(contents)
    if altered:
        file, _, first = altered[0].partition(": ")
        line = re.match("line ([0-9]+) ", first)
        more = [f"and {len(altered) - _MAX_NAMED} more"] if len(altered) > _MAX_NAMED else []
        evidence = "; ".join([first, *altered[1:_MAX_NAMED], *more])
        return Outcome("fail", evidence, f"{file}:{line[1]}" if line else file)
    return Outcome("not applicable", "nothing contradicts a manifest; vflops verify reports on it")
