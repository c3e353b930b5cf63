"""Challenges, and run folders that answer one."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tests.support.forged_runs import Forger
from tests.support.trained_runs import ZERO
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import Challenge, ChallengedRun

ISSUED = ZERO - timedelta(hours=1)
"""An hour before the first event of a handmade run."""
CHALLENGE = Challenge(
    nonce="ab" * 32,
    submitter="alice@example.org",
    issued_utc=ISSUED.isoformat(),
    expires_utc=(ISSUED + timedelta(days=30)).isoformat(),
)


def answer(run: Forger, challenged: ChallengedRun, **facts: Any) -> None:
    """Make a run the answer to a challenge: all its seeds follow from it.

    ``facts`` change other fields of ``run.json``.
    """
    path = run.folder.path / "run.json"
    data = json.loads(path.read_text())
    before = run.folder.record.settings
    data["challenge"] = challenged.model_dump(mode="json")
    data["settings"] = challenged.seeded(before).model_dump(mode="json")
    data.update({"created_utc": ZERO.isoformat(), **facts})
    path.write_text(json.dumps(data))
    shift = challenged.seed - before.seed
    run.folder = RunFolder.open(run.folder.path)

    def reseed(record: dict[str, Any]) -> None:
        record["seed"] += shift
        record["settings"] = data["settings"]["workloads"][record["workload"]]
        if record.get("bag"):
            record["bag"]["seed"] += shift

    run.records(reseed)
