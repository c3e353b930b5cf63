"""Arbitrary bytes: a reader of outside files returns what is valid, or says what is wrong.

A reader is one line of ``READERS`` in ``tests/support/fuzz_readers.py``. The damage is the same
each time; ``make fuzz`` tries more of it, with another seed each day.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.fuzz_readers import READERS, contents, write_good_inputs
from tests.support.fuzzing import fuzz, limited_time, matching, summary
from tests.support.ranking_runs import TASK
from vflops.errors import VflopsError
from vflops.results.score.scoring import score

MUTATIONS = int(os.environ.get("VFLOPS_FUZZ", "100"))
SEED = os.environ.get("VFLOPS_FUZZ_SEED", "0")
TARGET = f'"target": {TASK.synthetic.target}'.encode()
MANY = 40_000
"""Entries of a list; work that grows with their square takes more than the time allowed."""
DEEP = b"a." * 1500
"""More parts of a key than repr() descends to; the time to parse them grows with their square."""
SHOWN = "a huge dict" if sys.version_info < (3, 13) else "{'a': {'a': "  # which repr() shows whole


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every kind of file."""
    root = tmp_path_factory.mktemp("good")
    write_good_inputs(root)
    return root


def mutations(name: str) -> int:
    """Return how many inputs are tried; none of slow readers if few are asked for."""
    return round(MUTATIONS * READERS[name].share)


@pytest.mark.parametrize("name", [name for name in READERS if mutations(name)])
def test_what_is_not_damaged_is_read(good: Path, name: str) -> None:
    paths = matching(good, READERS[name])
    assert paths, f"no file is like {READERS[name].files}"
    READERS[name].read(paths[0])


@pytest.mark.parametrize("name", [name for name in READERS if mutations(name)])
def test_what_is_damaged_is_valid_or_refused(good: Path, name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    seeds = [f"{SEED}-{number}" for number in range(mutations(name))]
    failures = fuzz(reader, name, good, tmp_path, seeds)
    assert not failures, f"{len(failures)} of {len(seeds)} inputs:\n{summary(failures)}"


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("settings", b"seed = 7", b"seed = 0x" + b"f" * 5000, "seed = a huge int"),
        ("settings", b"seed = 7", b"seed = " + b"9" * 5000, "is not TOML"),
        ("settings", b"seed = 7", b"seed = " + b"[" * 20_000, "is not TOML"),
        ("settings", b"seed = 7", b"seed." + DEEP + b"a = 1", f"seed = {SHOWN}"),
        ("assignments", b"seed=7", b"seed=" + b"[" * 20_000, "setting seed = "),
        ("site", b'account = "a"', b"account." + DEEP + b"a = 1", f"account = {SHOWN}"),
        ("site", b"2-00:00", b"9" * 5000 + b"-00:00", "time_limit = "),
        ("power log", b"2026-01-31T12:00:00Z", b"0001-01-01T00:00:00+23:00", "2001 and 2286"),
        ("power log", b"1.5", b"1e308", "expected a number that is at least 0"),
        ("labels", b"one 1 2 3 4", b" ", "has no class for a"),
        ("labels", b"one 1 2 3 4", b"x" * 200_000, "is not CSV"),
        ("labels", b"one 1 2 3 4", b"9" * 5000, "names the class"),
        ("packed images", b'"train.npz"', b'"\\u0000"', "it is a name with odd characters"),
        ("system", b'"2.13.0"', b'"\\ud800"', "is not JSON"),
        ("ledger", b'"fail"', b'"\\ud800"', "is not JSON"),
        ("log", b'"utc": "2', b'"utc": "x', "expected a time"),
    ],
)
def test_what_once_had_no_message(
    good: Path, name: str, old: bytes, new: bytes, expected: str
) -> None:
    path = matching(good, READERS[name])[0]
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    try:
        with pytest.raises(VflopsError, match=re.escape(expected)):
            READERS[name].read(path)
    finally:
        path.write_bytes(content)


FACT = '{"name": "%d", "value": 1, "unit": null, "source": "s", "reason": null}, '
SERIES = (
    '{"id": "a%d", "title": "t", "unit": "W", "source": "s", "kind": "gauge", "part": "node"}, '
)
FIGURE = '[[figure]]\nname = "f%d"\nat_least = 1\ntolerance = 0.1\n'


@pytest.mark.parametrize(
    ("name", "after", "entry"),
    [
        ("run", b"{", '"%d": 0, '),
        ("system", b'"facts": [', FACT),
        ("telemetry", b'"series":[', SERIES),
        ("reference", b"tolerance = 0.05\n", FIGURE),
    ],
)
def test_many_entries_are_read_in_time(good: Path, name: str, after: bytes, entry: str) -> None:
    path = matching(good, READERS[name])[0]
    content = path.read_bytes()
    plain = json.dumps(json.loads(content)).encode() if path.suffix == ".json" else content
    entries = "".join(entry % number for number in [*range(MANY), MANY - 1]).encode()
    path.write_bytes(plain.replace(after, after + entries, 1))
    try:
        with limited_time(), pytest.raises(VflopsError, match=r"twice|two facts|2 times"):
            READERS[name].read(path)
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("job", "old", "new", "expected"),
    [
        ("searches/*/jobs/1/job.json", b'"tune_from"', b'"tune_form"', "search.tune_form"),
        ("runs/*/jobs/1/job.json", b'"exponent": 5', b'"exponent": -1', "exponent is -1"),
        ("runs/*/jobs/1/job.json", TARGET, b'"target": -1', "target is -1"),
    ],
)
def test_a_job_that_no_run_plans_has_no_score(
    good: Path, job: str, old: bytes, new: bytes, expected: str
) -> None:
    path = next(good.glob(job))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    try:
        with pytest.raises(VflopsError, match=expected):
            score(contents(path))
    finally:
        path.write_bytes(content)
