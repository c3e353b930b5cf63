"""The recorded settings of a run once more, on the reader's machine, and how the two compare."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.config.flatten import differences
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.check.background_load import quiet
from vflops.results.score.scoring import score
from vflops.results.score.twins import same_bits
from vflops.studies.reproduce.reproduced_figures import figures
from vflops.studies.reproduce.reproduction import Difference, Figure, Reproduction
from vflops.workloads.contract.run_settings import load

SOFTWARE = ("communication libraries", "accelerator libraries", "framework")
"""The layers that decide which bits come out."""


@dataclass(frozen=True)
class Recorded:
    """A run that is to be reproduced."""

    folder: RunFolder
    alterations: tuple[str, ...]


@contextmanager
def opened(path: Path) -> Iterator[Recorded]:
    """The run in a folder or in an archive, which is unpacked as long as it is needed."""
    if not path.is_file():
        yield _recorded(path)
        return
    with TemporaryDirectory() as place:
        yield _recorded(extract(path, Path(place)))


def _recorded(path: Path) -> Recorded:
    found = verify(path)
    open_ = (f"it was not concluded: {found.unconcluded}",) if found.unconcluded else ()
    return Recorded(RunFolder.open(path), (*open_, *found.alterations))


def settings_of(
    folder: RunFolder,
    data: Path | None = None,
    *,
    on: str | None = None,
    container: str | None = None,
    allow_command: bool = False,
) -> Settings:
    """The settings of a run, for this machine.

    A program or a container image that somebody else's record names is not run unasked.
    """
    settings = folder.record.settings
    for name, section in settings.workloads.items():
        words = section.get("command")
        if words and not allow_command:
            raise UsageError(
                f"{name} of {folder.record.id} runs its author's program: {shlex.join(words)}",
                hint="read that program first; if you trust it, add --allow-command",
            )
        place = section.get("data")
        if data is None and place is not None and not Path(place).exists():
            raise UsageError(
                f"{name} of {folder.record.id} was trained with {place}, which is not here",
                hint="say where that data is: --data DIR",
            )
    assignments = [f"launch.on={on}"] if on else []
    if data is not None:
        assignments.append(f"data={json.dumps(str(data.resolve()))}")
    if container is not None:
        assignments.append(f"launch.container={json.dumps(container)}")
    launch = settings.launch.model_copy(update={"container": None})
    return load(settings.model_copy(update={"launch": launch}), None, assignments)


def reproduction_file(folder: RunFolder) -> Path:
    """Where the comparison goes, in the folder of the new run."""
    return folder.path / "reproduction.json"


def compare(recorded: Recorded, folder: RunFolder) -> Reproduction:
    """What is the same in both runs and what is not, in figures and in words."""
    old, new = Contents(recorded.folder), Contents(folder)
    systems = _system(recorded.folder), _system(folder)
    pairs = _pairs(old, new)
    same_data = _same_data(pairs)
    machine = software = None
    differences: tuple[Difference, ...] = ()
    if systems[0] is not None and systems[1] is not None:
        machine = systems[0].machine == systems[1].machine
        differences = tuple(_differences(systems[0], systems[1]))
        software = not differences
    bits, reason = _bits(pairs)
    if bits is False and not (machine and software and same_data):
        bits, reason = None, "machine, software or data are not the same, so bits need not be"
    found = figures(score(old), score(new))
    facts = Reproduction(
        recorded=recorded.folder.record.id,
        run=folder.record.id,
        altered=recorded.alterations,
        same_machine=machine,
        same_software=software,
        same_data=same_data,
        differences=differences,
        same_bits=bits,
        bits_reason=reason,
        figures=found,
        sentences=(),
        contradictions=tuple(_contradictions(found, bits, same_data)),
    )
    loud = [line for run, when in ((old, "then"), (new, "here")) for line in _loud(run, when)]
    return facts.model_copy(update={"sentences": (*_sentences(facts), *loud)})


def _loud(contents: Contents, when: str) -> Iterator[str]:
    """That a run was not alone on its machine, as its rule ``quiet`` judges."""
    found = quiet(contents)
    if found.verdict == "fail":
        yield f"The machine was not quiet {when}: {found.evidence}."


def _system(folder: RunFolder) -> SystemRecord | None:
    return SystemRecord.read(folder.system_file) if folder.system_file.is_file() else None


def _differences(old: SystemRecord, new: SystemRecord) -> Iterator[Difference]:
    for layer in SOFTWARE:
        facts = [{fact.name: fact.value for fact in each.layer(layer).facts} for each in (old, new)]
        for name, values in differences(facts[1], facts[0]).items():
            here, recorded = (None if value is None else str(value) for value in values)
            yield Difference(layer=layer, name=name, recorded=recorded, here=here)


def _pairs(old: Contents, new: Contents) -> list[tuple[TrainedJob, TrainedJob]]:
    """The trainings of both runs that have the same number, workload and seed."""
    there = {(each.record.job, each.record.workload, each.record.seed): each for each in _jobs(new)}
    keys = [
        ((each.record.job, each.record.workload, each.record.seed), each) for each in _jobs(old)
    ]
    return [(each, there[key]) for key, each in keys if key in there]


def _jobs(contents: Contents) -> list[TrainedJob]:
    return [*contents.trained, *contents.workers]


def _same_data(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> bool | None:
    if not pairs:
        return None
    return all(a.record.data.fingerprint == b.record.data.fingerprint for a, b in pairs)


def _bits(pairs: Sequence[tuple[TrainedJob, TrainedJob]]) -> tuple[bool | None, str | None]:
    """Whether all trainings agree to the last bit; one that differs decides, then one unknown."""
    trainings = [(a, b) for a, b in pairs if a.record.worker is None]
    if not trainings:
        return None, "nothing was trained in both, or only by a search, whose time decides"
    found = [same_bits(a, b) for a, b in trainings]
    for wanted in (False, None):
        for verdict, reason in found:
            if verdict is wanted:
                return verdict, reason
    return True, None


def _contradictions(
    found: Sequence[Figure], bits: bool | None, same_data: bool | None
) -> Iterator[str]:
    if same_data is False:
        yield "the data is not that of the record"
    if bits is False:
        yield "machine, software and data are the same, and the trained weights are not"
    elif same_data:
        for each in found:
            if each.kind == "quality" and each.verdict == "outside":
                yield f"{each.name} is outside the spread of the record"


def _sentences(found: Reproduction) -> Iterator[str]:
    """The comparison in words, what matters most first."""
    kind = {True: "the same kind of machine", False: "another machine", None: "a machine"}
    with_ = {True: "the same software", False: "other software", None: "software"}
    unknown = "" if found.same_machine is not None else "; of one of them the system is not known"
    yield (
        f"{found.recorded} was run again on {kind[found.same_machine]} "
        f"with {with_[found.same_software]}{unknown}."
    )
    for each in found.differences[:6]:
        yield f"{each.name}: {each.recorded or 'none'} then, {each.here or 'none'} here."
    if len(found.differences) > 6:
        yield f"{len(found.differences) - 6} more differences are in reproduction.json."
    if found.same_data is not None:
        yield f"The data is {'the same' if found.same_data else 'not the same'}, by fingerprint."
    if found.same_bits:
        yield "The trained weights and all qualities are equal to the last bit."
    elif found.same_bits is False:
        yield "The trained weights are not equal to the last bit, and should be."
    elif found.same_data is not None:
        yield f"Equal to the last bit? That cannot be told: {found.bits_reason}."
