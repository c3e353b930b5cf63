"""Combines the stored predictions of recorded ensembles again.

The predictions themselves are held to the weights by the last evaluation of every model.
"""

from __future__ import annotations

from vflops.errors import FolderError
from vflops.record.formats.job import DataFacts
from vflops.record.formats.job_events import Ensembled
from vflops.record.readout.contents import Contents
from vflops.results.evidence.audit_record import AuditedEnsemble


def combined_again(recorded: Contents, data: dict[str, DataFacts]) -> list[AuditedEnsemble]:
    """Return the quality of each ensemble of the run, computed with the data of this machine."""
    from vflops.train.ensemble.aggregation import ensembles, final_quality

    events = [event.payload(Ensembled) for event in recorded.history.events("ensemble")]
    newest = {(event.workload, event.repeat): event for event in events}
    rows = []
    for group in ensembles([job.record for job in recorded.training_jobs]):
        first = group[0]
        event = newest.get((first.workload, first.repeat))
        if event is None:
            continue
        records = [
            record.model_copy(update={"data": data[record.workload]})
            for record in group
            if record.job in event.jobs
        ]
        claimed, here = event.sizes[-1].quality, None
        try:
            here = final_quality(recorded.folder, recorded.history, records)
            detail = "no predictions are stored" if here is None else "predictions combined again"
        except (FolderError, OSError, ValueError) as error:
            detail = f"its predictions cannot be read: {error}"
        rows.append(
            AuditedEnsemble(
                workload=first.workload,
                repeat=first.repeat,
                quality_recorded=claimed,
                quality_here=here,
                detail=detail,
            )
        )
    return rows
