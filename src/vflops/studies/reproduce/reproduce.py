"""Reproduction of a run: its recorded settings for this machine, and how both runs compare."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.background_load import check_background_load
from vflops.results.score.twins import same_bits
from vflops.studies.compare.differences import differing
from vflops.studies.compare.side import ReadRun
from vflops.studies.reproduce.reproduced_figures import figures
from vflops.studies.reproduce.reproduction import Difference, Figure, Reproduction
from vflops.workloads.contract.run_settings import load

SOFTWARE = ("communication libraries", "accelerator libraries", "framework")
"""The layers of the system that determine the exact bits of a result."""
_MOST_SENTENCES = 6
"""Differences that are put into words; all of them are in ``reproduction.json``."""


@dataclass(frozen=True)
class Recorded:
    """A run to reproduce."""

    folder: RunFolder
    alterations: tuple[str, ...]


@contextmanager
def opened(path: Path) -> Iterator[Recorded]:
    """Open the run in a folder, or in an archive that is extracted for the time being."""
    if not path.is_file():
        yield _recorded(path)
        return
    with TemporaryDirectory() as temporary:
        yield _recorded(extract(path, Path(temporary)))


def _recorded(path: Path) -> Recorded:
    verification = verify(path)
    unconcluded = verification.unconcluded
    open_ = (f"the run was not concluded: {unconcluded}",) if unconcluded else ()
    return Recorded(RunFolder.open(path), (*open_, *verification.alterations))


def settings_of(
    folder: RunFolder,
    data: Path | None = None,
    *,
    on: str | None = None,
    container: str | None = None,
    allow_command: bool = False,
) -> Settings:
    """Return the settings of a run for this machine.

    A program or a container image of somebody else's record is never run without consent.
    """
    settings = folder.record.settings
    for name, section in settings.workloads.items():
        words = section.get("command")
        if words and not allow_command:
            raise UsageError(
                f"{name} of {folder.record.id} runs its author's program: {shlex.join(words)}",
                hint="read that program first; if you trust it, add --allow-command",
            )
        recorded_data = section.get("data")
        if data is None and recorded_data is not None and not Path(recorded_data).exists():
            raise UsageError(
                f"{name} of {folder.record.id} was trained with {recorded_data}, which is not here",
                hint="give the path of that data: --data DIR",
            )
    assignments = [f"launch.on={on}"] if on else []
    if data is not None:
        assignments.append(f"data={json.dumps(str(data.resolve()))}")
    if container is not None:
        assignments.append(f"launch.container={json.dumps(container)}")
    launch = settings.launch.model_copy(update={"container": None})
    return load(settings.model_copy(update={"launch": launch}), None, assignments)


def reproduction_file(folder: RunFolder) -> Path:
    """Return the path of the comparison in the folder of the new run."""
    return folder.path / "reproduction.json"


def compare(recorded: Recorded, folder: RunFolder) -> Reproduction:
    """Return what is equal in both runs and what is not, in figures and in words."""
    old, new = ReadRun.of(recorded.folder), ReadRun.of(folder)
    pairs = _pairs(old.contents, new.contents)
    same_data = _same_data(pairs)
    machine = software = None
    differences: tuple[Difference, ...] = ()
    if old.system is not None and new.system is not None:
        machine = old.system.machine == new.system.machine
        differences = tuple(_software_differences(old.system, new.system))
        software = not differences
    bits, reason = _bits(pairs)
    if bits is False and not (machine and software and same_data):
        bits, reason = None, "machine, software or data differ, so the bits may differ too"
    compared = figures(old.score, new.score)
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
    """Yield a sentence if other processes used the machine, by the rule ``quiet``."""
    outcome = check_background_load(contents)
    if outcome.verdict == "fail":
        yield f"The machine was not quiet {when}: {outcome.evidence}."


def _software_differences(old: SystemRecord, new: SystemRecord) -> Iterator[Difference]:
    for layer in SOFTWARE:
        values = [
            {fact.name: str(fact.value) for fact in facts if fact.value is not None}
            for facts in (old.layer(layer).facts, new.layer(layer).facts)
        ]
        for row in differing(layer, values):
            recorded, here = row.values
            yield Difference(layer=layer, name=row.name, recorded=recorded, here=here)


def _pairs(old: Contents, new: Contents) -> list[tuple[TrainedJob, TrainedJob]]:
    """Return the trainings of both runs with the same number, workload and seed."""
    there = {_key(job): job for job in _jobs(new)}
    return [(job, there[_key(job)]) for job in _jobs(old) if _key(job) in there]


def _key(job: TrainedJob) -> tuple[int, str, int]:
    return job.record.job, job.record.workload, job.record.seed


def _jobs(contents: Contents) -> list[TrainedJob]:
    return [*contents.training_jobs, *contents.workers]


def _same_data(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> bool | None:
    if not pairs:
        return None
    return all(a.record.data.fingerprint == b.record.data.fingerprint for a, b in pairs)


def _bits(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> tuple[bool | None, str | None]:
    """Return whether all trainings are equal to the last bit, or why that is not known.

    One pair that differs decides; after that, one pair that is unknown does.
    """
    trainings = [(a, b) for a, b in pairs if a.record.worker is None]
    if not trainings:
        return None, "no training is in both runs except those of a search, which depend on time"
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
        yield "the data is not that of the record"
    if bits is False:
        yield "machine, software and data are the same, but the trained weights differ"
    elif same_data:
        for figure in compared:
            if figure.kind == "quality" and figure.verdict == "outside":
                yield f"{figure.name} is outside the spread of the record"


def _sentences(reproduction: Reproduction) -> Iterator[str]:
    """Yield the comparison in words, the most important first."""
    machine = {True: "the same kind of machine", False: "another machine", None: "a machine"}
    software = {True: "the same software", False: "different software", None: "software"}
    known = reproduction.same_machine is not None
    unknown = "" if known else "; the system of one of the runs is not described"
    yield (
        f"{reproduction.recorded} was run again on {machine[reproduction.same_machine]} "
        f"with {software[reproduction.same_software]}{unknown}."
    )
    differences = reproduction.differences
    for row in differences[:_MOST_SENTENCES]:
        yield f"{row.name}: {row.recorded or 'none'} then, {row.here or 'none'} here."
    if len(differences) > _MOST_SENTENCES:
        more = len(differences) - _MOST_SENTENCES
        yield f"{more} more differences are in reproduction.json."
    if reproduction.same_data is not None:
        same = "the same" if reproduction.same_data else "not the same"
        yield f"The data is {same}, by fingerprint."
    if reproduction.same_bits:
        yield "The trained weights and all qualities are equal to the last bit."
    elif reproduction.same_bits is False:
        yield "The trained weights should be equal to the last bit, but they are not."
    elif reproduction.same_data is not None:
        reason = reproduction.bits_reason
        yield f"Whether the weights are equal to the last bit is not known: {reason}."
