"""``challenge.json``: a signed random number from which every seed of a run follows.

The keeper of a list issues a challenge to a submitter. Before that, nobody knows the seeds of the
run, so nothing of it can be computed earlier; and since the name of the submitter is part of the
derivation, no two submitters have a run in common.
"""

from __future__ import annotations

import hashlib
import json
import math
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from vflops.config.settings import Settings
from vflops.record.files.document import Data, Document

SEED_BITS = 52
"""Seeds stay below 2**53, the largest integer that every JSON reader keeps, also if the numbers of
repeats and models are added to them."""
MAX_RUNS = 1000
"""The number of runs that one challenge allows. With a free choice of numbers, somebody could try
them until the seeds of a run that was computed earlier appear."""
_TRAINING, _DATA = "training", "synthetic data"
_DERIVATION = "vflops seed 1"


def _time(text: str) -> str:
    """Return ``text`` if it is a point in time with its time zone."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    datetime.fromisoformat(text).timestamp()
    return text


def _name(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected a name without line breaks, control characters and outer spaces")
    return text


def utc_text(time_s: float) -> str:
    """Return a Unix time as text, such as ``2026-01-31T12:00:00+00:00``."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="seconds")


def utc_seconds(text: str) -> float:
    """Return the Unix time of a text that ``Time`` accepts."""
    return datetime.fromisoformat(text).timestamp()


Time = Annotated[str, Field(max_length=40), AfterValidator(_time)]
Submitter = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_name)]


class Challenge(Document):
    """A random number that the keeper of a list issued to a submitter at a certain time.

    The file does not name the keeper: that would be a mere claim. The name comes from the line of
    the key in the reader's list of allowed signers.
    """

    schema_name: ClassVar[str] = "vflops.challenge"

    nonce: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """32 random bytes."""
    submitter: Submitter
    """For whom it was issued."""
    issued_utc: Time
    expires_utc: Time | None = None
    """When the result must have been handed in; None for no limit."""
    signature: Annotated[str, Field(max_length=1 << 16)] = ""
    """An SSH signature of ``body``, in the namespace ``vflops-challenge``."""

    @property
    def body(self) -> bytes:
        """The signed bytes: everything but the signature."""
        fields: dict[str, Any] = self.model_dump(mode="json", exclude={"signature"})
        tag = f"{self.schema_name}/{self.schema_version}"
        return json.dumps({"schema": tag, **fields}, sort_keys=True).encode()

    @property
    def issued_s(self) -> float:
        """When it was issued, as Unix time."""
        return utc_seconds(self.issued_utc)

    @property
    def expires_s(self) -> float:
        """When it expires, as Unix time; infinite if it does not."""
        return math.inf if self.expires_utc is None else utc_seconds(self.expires_utc)


class ChallengedRun(Data):
    """The challenge that a run answers, as recorded in ``run.json``."""

    issued: Challenge
    number: Annotated[int, Field(ge=0, lt=MAX_RUNS)]
    """Which run of the challenge this is: the ``--seed`` of the command."""
    reproduces: str | None = None
    """The id of the run whose seeds this run repeats; None for the run of the submitter."""

    @property
    def seed(self) -> int:
        """The seed of the run, from which weights, order, augmentation and samples follow."""
        return self._seed(_TRAINING)

    @property
    def data_seed(self) -> int:
        """The seed that synthetic data is drawn with."""
        return self._seed(_DATA)

    def seeded(self, settings: Settings) -> Settings:
        """Return ``settings`` with the seeds that follow from the challenge."""
        workloads = {name: self._with_data(data) for name, data in settings.workloads.items()}
        return settings.model_copy(update={"seed": self.seed, "workloads": workloads})

    def _with_data(self, section: dict[str, Any]) -> dict[str, Any]:
        if not draws_data(section):
            return section
        return {**section, "synthetic": {**section["synthetic"], "seed": self.data_seed}}

    def _seed(self, purpose: str) -> int:
        head = f"{_DERIVATION}\n{purpose}\n{self.number}\n".encode()
        digest = hashlib.sha256(head + self.issued.body).digest()
        return int.from_bytes(digest, "big") >> (8 * len(digest) - SEED_BITS)


def draws_data(section: dict[str, Any]) -> bool:
    """Whether a workload with these settings draws synthetic data from a seed."""
    synthetic = section.get("synthetic")
    return section.get("data") is None and isinstance(synthetic, dict) and "seed" in synthetic
