"""Reproduces a run: adapts its recorded settings to this machine, and compares both runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.config.named_programs import named_programs
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.background_load import check_background_load
from vflops.results.score.twins import same_bits
from vflops.studies.compare.differences import differing
from vflops.studies.compare.run_view import RunView
from vflops.studies.reproduce.reproduced_figures import compare_figures
from vflops.studies.reproduce.reproduction import Difference, Figure, Reproduction
from vflops.text import printable
from vflops.workloads.contract.run_settings import load

SOFTWARE = ("communication libraries", "accelerator libraries", "framework")
"""The layers of the system that determine the exact bits of a result."""
_MAX_SENTENCES = 6
"""The largest number of differences with a sentence; ``reproduction.json`` has all of them."""


@dataclass(frozen=True)
class RecordedRun:
    """A run to reproduce."""

    folder: RunFolder
    alterations: tuple[str, ...]


@contextmanager
def open_recorded(path: Path) -> Iterator[RecordedRun]:
    """Open the run in a folder or an archive, which is extracted to a temporary folder."""
    if not path.is_file():
        yield _recorded(path)
        return
    with TemporaryDirectory() as temporary:
        yield _recorded(extract(path, Path(temporary)))


def _recorded(path: Path) -> RecordedRun:
    verification = verify(path)
    reason = verification.unconcluded
    unconcluded = (f"the run was not concluded: {reason}",) if reason else ()
    return RecordedRun(RunFolder.open(path), (*unconcluded, *verification.alterations))


def settings_of(
    folder: RunFolder,
    data: Path | None = None,
    *,
    on: str | None = None,
    container: str | None = None,
    allow_command: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Settings:
    """Return the settings of a run, adapted to this machine.

    A program that the record names is started only with ``allow_command``, and ``tell`` says which
    one it is. A container image that it names is never used.
    """
    recorded = folder.record.settings
    launch = recorded.launch.model_copy(update={"container": None})
    settings = recorded.model_copy(update={"launch": launch})
    for program in map(printable, named_programs(settings)):
        if not allow_command:
            raise UsageError(
                f"{folder.record.id} runs its author's program: {program}",
                hint="read that program first; if you trust it, add --allow-command",
            )
        tell(f"allowed: {program}")
    for name, section in settings.workloads.items():
        recorded_data = section.get("data")
        if data is None and recorded_data is not None and not Path(recorded_data).exists():
            raise UsageError(
                f"{name} of {folder.record.id} was trained with {recorded_data}, which does not"
                " exist here",
                hint="give the path of that data: --data DIR",
            )
    assignments = [f"launch.on={on}"] if on else []
    if data is not None:
        assignments.append(f"data={json.dumps(str(data.resolve()))}")
    if container is not None:
        assignments.append(f"launch.container={json.dumps(container)}")
    return load(settings, None, assignments)


def repeated_challenge(folder: RunFolder) -> ChallengedRun | None:
    """Return what a reproduction records of the challenge of a run, whose seeds it repeats."""
    challenge = folder.record.challenge
    if challenge is None:
        return None
    return challenge.model_copy(update={"reproduces": challenge.reproduces or folder.record.id})


def reproduction_file(folder: RunFolder) -> Path:
    """Return the path of ``reproduction.json`` in the folder of the new run."""
    return folder.path / "reproduction.json"


def compare(recorded: RecordedRun, folder: RunFolder) -> Reproduction:
    """Return the comparison of a recorded run with its reproduction in ``folder``."""
    old, new = RunView.from_folder(recorded.folder), RunView.from_folder(folder)
    pairs = _pairs(old.contents, new.contents)
    same_data = _same_data(pairs)
    machine = software = None
    differences: tuple[Difference, ...] = ()
    if old.system is not None and new.system is not None:
        machine = old.system.machine == new.system.machine
        differences = tuple(software_differences(old.system, new.system))
        software = not differences
    bits, reason = _bits(pairs)
    if bits is False and not (machine and software and same_data):
        bits, reason = None, "machine, software or data differ, so the weights may differ too"
    compared = compare_figures(old.score, new.score)
    facts = Reproduction(
        recorded=old.id,
        run=new.id,
        altered=recorded.alterations,
        same_machine=machine,
        same_software=software,
        same_data=same_data,
        differences=differences,
        same_bits=bits,
        bits_reason=reason,
        figures=compared,
        sentences=(),
        contradictions=tuple(_contradictions(compared, bits, same_data)),
    )
    busy = [*_busy(old.contents, "then"), *_busy(new.contents, "here")]
    return facts.model_copy(update={"sentences": (*_sentences(facts), *busy)})


def _busy(contents: Contents, when: str) -> Iterator[str]:
    """Yield a sentence if the run breaks the rule ``quiet``: other processes used the machine."""
    outcome = check_background_load(contents)
    if outcome.verdict == "fail":
        yield f"The machine was not quiet {when}: {outcome.evidence}."


def software_differences(old: SystemRecord, new: SystemRecord) -> Iterator[Difference]:
    """Yield the facts of the software that determine the bits of a result and differ."""
    for layer in SOFTWARE:
        values = [
            {fact.name: str(fact.value) for fact in facts if fact.value is not None}
            for facts in (old.layer(layer).facts, new.layer(layer).facts)
        ]
        for row in differing(layer, values):
            recorded, here = row.values
            yield Difference(layer=layer, name=row.name, recorded=recorded, here=here)


def _pairs(old: Contents, new: Contents) -> list[tuple[TrainedJob, TrainedJob]]:
    """Return the pairs of jobs with the same number, workload and seed in both runs."""
    new_jobs = {_key(job): job for job in _jobs(new)}
    return [(job, new_jobs[_key(job)]) for job in _jobs(old) if _key(job) in new_jobs]


def _key(job: TrainedJob) -> tuple[int, str, int]:
    return job.record.job, job.record.workload, job.record.seed


def _jobs(contents: Contents) -> list[TrainedJob]:
    return [*contents.training_jobs, *contents.workers]


def _same_data(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> bool | None:
    if not pairs:
        return None
    return all(a.record.data.fingerprint == b.record.data.fingerprint for a, b in pairs)


def _bits(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> tuple[bool | None, str | None]:
    """Return whether all trained models are bitwise equal, or None and why that is not known.

    The result is False if any pair differs, else None if any pair is unknown.
    """
    trainings = [(a, b) for a, b in pairs if a.record.worker is None]
    if not trainings:
        return None, "both runs have only jobs of a search in common, which depend on timing"
    outcomes = [same_bits(a, b) for a, b in trainings]
    for decisive in (False, None):
        for verdict, reason in outcomes:
            if verdict is decisive:
                return verdict, reason
    return True, None


def _contradictions(
    compared: Sequence[Figure], bits: bool | None, same_data: bool | None
) -> Iterator[str]:
    if same_data is False:
        yield "the data differs from that of the recorded run"
    if bits is False:
        yield "machine, software and data are the same, but the trained weights differ"
    elif same_data:
        for figure in compared:
            if figure.kind == "quality" and figure.verdict == "outside":
                yield f"{figure.name} is outside the spread of the recorded run"


def _sentences(reproduction: Reproduction) -> Iterator[str]:
    """Yield the sentences of the comparison, the most important first."""
    machine = {True: "the same kind of machine", False: "another machine", None: "a machine"}
    software = {True: "the same software", False: "different software", None: "software"}
    known = reproduction.same_machine is not None
    unknown = "" if known else "; the system of one of the runs is not described"
    yield (
        f"{reproduction.recorded} was run again on {machine[reproduction.same_machine]} "
        f"with {software[reproduction.same_software]}{unknown}."
    )
    differences = reproduction.differences
    for row in differences[:_MAX_SENTENCES]:
        yield f"{row.name}: {row.recorded or 'none'} then, {row.here or 'none'} here."
    if len(differences) > _MAX_SENTENCES:
        more = len(differences) - _MAX_SENTENCES
        yield f"{more} more differences are in reproduction.json."
    if reproduction.same_data is not None:
        same = "the same" if reproduction.same_data else "not the same"
        yield f"The data is {same}, by fingerprint."
    if reproduction.same_bits:
        yield "The trained weights and all qualities are bitwise equal."
    elif reproduction.same_bits is False:
        yield "The trained weights should be bitwise equal, but they are not."
    elif reproduction.same_data is not None:
        reason = reproduction.bits_reason
        yield f"It is not known whether the weights are bitwise equal: {reason}."
