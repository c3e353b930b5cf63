"""Copies of a run are recognised by what it measured; dates do not say whose run it is."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden_runs import GOLDEN, extracted
from vflops.publish.ranking.duplicates import find_duplicates
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.lists import energy_ranking, ranking
from vflops.publish.ranking.measured_sketch import are_similar, event_sketch, telemetry_sketch
from vflops.publish.ranking.ranking_document import ranking_document
from vflops.publish.ranking.ranking_pages import index_page
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents

Line = dict[str, Any]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Real runs of the same machine; the first two are of the same workload."""
    parent = tmp_path_factory.mktemp("golden")
    return [extracted(archive, parent) for archive in GOLDEN[:4]]


def sketches(path: Path) -> tuple[str, str]:
    contents = Contents(RunFolder.open(path))
    return event_sketch(contents.history), telemetry_sketch(contents)


def test_no_two_runs_have_similar_sketches(golden: list[Path]) -> None:
    found = [sketches(path) for path in golden]
    assert all(min(map(len, pair)) >= 4 * 12 for pair in found)
    for number, one in enumerate(found):
        for other in found[number + 1 :]:
            assert not any(map(are_similar, one, other))


def _shifted(line: Line) -> None:
    line["time_s"] = round(line["time_s"] + 86_400.123456, 6)
    line["utc"] = "2020-01-01T00:00:00.000+00:00"


def _slower(line: Line) -> None:
    """Clocks are changed everywhere, and sensor readings are not."""
    line["time_s"] *= 1.1
    if "phases" in line.get("data", {}):
        line["data"]["phases"] = {key: 1.1 * s for key, s in line["data"]["phases"].items()}


def _other_readings(line: Line) -> None:
    if "values" in line:
        line["values"] = [value and value + random.random() for value in line["values"]]


def _half(line: Line) -> None:
    """Every other line is changed."""
    if random.random() < 0.5:
        _slower(line)
        _other_readings(line)


@pytest.mark.parametrize("change", [_shifted, _slower, _other_readings, _half])
def test_a_copy_is_recognised_although_it_was_changed(
    golden: list[Path], tmp_path: Path, change: Callable[[Line], None]
) -> None:
    random.seed(1)
    copy = Path(shutil.copytree(golden[0], tmp_path / "copy"))
    for path in copy.glob("jobs/[1-9]*/*/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "time_s" in line:
                change(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert any(map(are_similar, sketches(golden[0]), sketches(copy)))


def entry(name: str, source: str, **facts: Any) -> Entry:
    return Entry(place=f"{source}/{name}", source=source, run=name, **facts)


def signed(name: str, signer: str, **facts: Any) -> Entry:
    return entry(name, signer, signer=signer, **facts)


SKETCH = "".join(f"{number:012x}" for number in range(32))
OTHER = "".join(f"{number:012x}" for number in range(24, 56))
"""A quarter of it is in ``SKETCH``."""


@pytest.mark.parametrize(
    "same",
    [
        {"course": "c"},
        {"durations": SKETCH},
        {"readings": SKETCH},
    ],
    ids=str,
)
def test_a_copy_by_another_signer_is_a_dispute_whatever_its_date(same: dict[str, Any]) -> None:
    victim = signed(
        "victim", "alice", **{"digest": "1", "course": "1", "day": "2026-02-02", **same}
    )
    thief = signed(
        "thief", "mallory", **{"digest": "2", "course": "2", "day": "2026-02-01", **same}
    )
    other = signed("other", "bob", digest="3", course="3", day="2026-01-01")
    found = find_duplicates([thief, other, victim])
    (dispute,) = found.disputes
    assert dispute.entries == (thief, victim)
    assert found.reasons.keys() == {id(thief), id(victim)}
    for name in ("alice/victim (signed by alice)", "mallory/thief (signed by mallory)"):
        assert name in dispute.reason


def test_disputes_are_on_the_page_and_in_the_document() -> None:
    victim = signed("victim", "alice", digest="1", course="c", day="2026-02-02")
    thief = signed("thief", "mallory<b>", digest="2", course="c", day="2026-02-01")
    found = ranking([thief, victim])
    assert not found.ranked and len(found.unranked) == 2
    energy = energy_ranking(found)
    page = index_page(found, energy)
    assert "<h2>Disputed</h2>" in page and "mallory&lt;b&gt; (signed)" in page
    assert "<h2>Disputed</h2>" not in index_page(ranking([victim]), energy)
    (dispute,) = ranking_document(found, energy).disputes
    assert [each.run for each in dispute.submissions] == ["thief", "victim"]
    assert all(each.signed for each in dispute.submissions)


def test_the_same_record_signed_by_two_is_a_dispute() -> None:
    """A signature can be replaced by another without a change to the record."""
    copies = [signed("run", name, digest="1", course="c") for name in ("alice", "mallory")]
    found = find_duplicates(copies)
    assert len(found.disputes) == 1 and len(found.reasons) == 2


def test_one_submitter_has_no_dispute_with_themselves() -> None:
    first, again = (
        signed(name, "alice", digest=name, course="c", day=f"2026-01-0{day}")
        for day, name in enumerate(("one", "two"), start=1)
    )
    found = find_duplicates([again, first])
    assert found.disputes == []
    assert found.reasons == {
        id(again): "a copy of alice/one under another id: it has the same measurements"
    }


def test_unsigned_copies_under_another_id_are_disputed_between_folders_and_without_one() -> None:
    for sources in (("a", "b"), ("", "")):
        pair = [
            entry(f"run{n}", source, digest=str(n), course="c") for n, source in enumerate(sources)
        ]
        assert len(find_duplicates(pair).disputes) == 1


@pytest.mark.parametrize(
    ("durations", "disputed"), [(OTHER, True), (OTHER[12:], False), ("", False)]
)
def test_a_quarter_of_a_sketch_in_common_is_a_copy(durations: str, disputed: bool) -> None:
    one = signed("one", "alice", digest="1", course="1", durations=SKETCH)
    other = signed("other", "bob", digest="2", course="2", durations=durations)
    assert bool(find_duplicates([one, other]).disputes) is disputed


def test_different_runs_with_the_same_id_do_not_rank() -> None:
    pair = [signed("run", name, digest=name, course=name) for name in ("alice", "bob")]
    found = find_duplicates(pair)
    assert found.disputes == []
    assert set(found.reasons.values()) == {
        "2 different submissions have the id run: alice/run, bob/run"
    }
