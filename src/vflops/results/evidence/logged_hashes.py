"""Comparison of files with their hashes in the run's log, which needs no manifest."""

from __future__ import annotations

from collections.abc import Iterator

from vflops.errors import FolderError
from vflops.record.files.read_once import is_file
from vflops.record.formats.job_events import JobPlanned, JobTrained, PowerImported
from vflops.record.formats.measured_node import FOLDER, LINKS, LinksMeasured, NodeMeasured
from vflops.record.formats.recorded_names import is_linked
from vflops.record.log.events import Described
from vflops.record.readout.contents import Contents


def hash_mismatches(contents: Contents) -> dict[str, list[str]]:
    """Return descriptions of files that do not match their hash in the run's log, by file."""
    faults: dict[str, list[str]] = {}
    try:
        for name, sha256 in dict(_logged_hashes(contents)).items():
            path = contents.folder.path / name
            if is_linked(contents.folder.path, name):
                faults[name] = [f"{name}: a link, not a file"]
            elif not is_file(path):
                faults[name] = [f"{name}: missing, but its hash is in the log"]
            elif contents.hash(path) != sha256:
                faults[name] = [f"{name}: does not match its hash in the log"]
    except FolderError as error:  # an invalid event
        faults["log"] = [error.message]
    return faults


def _logged_hashes(contents: Contents) -> Iterator[tuple[str, str]]:
    """Yield every file with its hashes, the newest last."""
    history, folder = contents.history, contents.folder
    for event in history.events("described"):
        yield "system.json", event.payload(Described).sha256
    for counted in contents.counted:
        yield f"graphs/{folder.graph_file(counted.model).name}", counted.sha256
    for event in history.events("node-measured"):
        measured = event.payload(NodeMeasured)
        yield f"{FOLDER}/{measured.node}.json", measured.sha256
    for event in history.events("links-measured"):
        links = event.payload(LinksMeasured)
        yield f"{LINKS}/{links.file}", links.sha256
    for event in history.events("job-planned"):
        planned = event.payload(JobPlanned)
        yield f"jobs/{planned.job}/job.json", planned.sha256
    for event in history.events("job-trained"):
        ended = event.payload(JobTrained)
        attempt = f"jobs/{ended.job}/{ended.attempt}"
        yield f"{attempt}/events.jsonl", ended.sha256
        if ended.telemetry_sha256 is not None:
            yield f"{attempt}/telemetry.jsonl", ended.telemetry_sha256
        for name, sha256 in (ended.files or {}).items():
            yield f"{attempt}/{name}", sha256
    for event in history.events("power-imported"):
        imported = event.payload(PowerImported)
        yield imported.file, imported.sha256
