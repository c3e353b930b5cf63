"""Files whose hashes are in the log of the run: known also where there is no manifest."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.errors import FolderError
from vflops.record.formats.job_events import JobPlanned, JobTrained, PowerImported
from vflops.record.log.events import Described
from vflops.record.readout.contents import Contents


def contradicted(contents: Contents) -> dict[str, list[str]]:
    """What is not as the run wrote it down, by file, in words."""
    found: dict[str, list[str]] = {}
    try:
        for name, sha256 in dict(_logged(contents)).items():
            path = contents.folder.path / name
            if not path.is_file():
                found[name] = [f"{name}: missing, and the log has its hash"]
            elif contents.hash(path) != sha256:
                found[name] = [f"{name}: not what the log has the hash of"]
    except FolderError as error:  # of an event that is none
        found["log"] = [error.message]
    return found


def _logged(contents: Contents) -> Iterator[tuple[str, str]]:
    """Every file with its newest hash."""
    history, folder = contents.history, contents.folder
    for event in history.events("described"):
        yield "system.json", event.payload(Described).sha256
    for counted in contents.counted:
        yield f"graphs/{folder.graph_file(counted.model).name}", counted.sha256
    for event in history.events("job-planned"):
        planned = event.payload(JobPlanned)
        yield f"jobs/{planned.job}/job.json", planned.sha256
    for event in history.events("job-trained"):
        ended = event.payload(JobTrained)
        place = f"jobs/{ended.job}/{ended.attempt}"
        yield f"{place}/events.jsonl", ended.sha256
        if ended.telemetry_sha256 is not None:
            yield f"{place}/telemetry.jsonl", ended.telemetry_sha256
        for name, sha256 in (ended.files or {}).items():
            yield f"{place}/{name}", sha256
    for event in history.events("power-imported"):
        imported = event.payload(PowerImported)
        yield imported.file, imported.sha256
