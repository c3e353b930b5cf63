"""The page of a search: its charts as data, its drawing, and what a terminal says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.sample_parts import write_system
from tests.support.search_runs import HandmadeSearch, evaluated, one_worker
from tests.support.trained_runs import write_telemetry
from vflops.publish.report import search_charts
from vflops.publish.report.architecture_drawing import draw_network
from vflops.publish.report.report_page import write_report
from vflops.publish.report.results import results
from vflops.publish.report.search_blocks import SearchBlock, search_blocks
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.workloads.automl.architecture.morphs import Morph, apply
from vflops.workloads.automl.architecture.starting_networks import resnet50, small

CHARTS = ("score", "tree", "spent", "utilisation")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeSearch:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch, tune_from=2)
    write_system(made.folder)
    place = made.worker(0, one_worker(made))
    write_telemetry(place, 9.0, 90.0)
    made.end()
    return made


def block_of(folder: RunFolder) -> SearchBlock:
    contents = Contents(RunFolder.open(folder.path))
    (found,) = search_blocks(contents, score(contents))
    return found


def rows_of(chart: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Every row of data in a chart, wherever its layers keep it."""
    assert chart is not None
    found = list(chart.get("data", {}).get("values", []))
    for part in (*chart.get("layer", []), *chart.get("hconcat", [])):
        found += rows_of(part)
    return found


def test_the_page_shows_a_search_and_asks_for_no_target(run: HandmadeSearch) -> None:
    write_report(Contents(RunFolder.open(run.folder.path)))
    page = run.folder.report_file.read_text()
    assert "searched for 1 min 40 s, 2 architectures, 1 worker" in page
    assert "the highest; 1.05 kOPS at the end" in page
    assert "not valid by AIPerf&#39;s rules: it took 1 min 40 s" in page
    assert "missed" not in page.split('id="answer"')[1].split("</section>")[0]
    for chart in (*CHARTS, "slices"):
        assert f'id="search-0-{chart}"' in page


def test_both_scores_are_drawn_over_time(run: HandmadeSearch) -> None:
    (found,) = score(Contents(run.folder)).searches
    rows = rows_of(search_charts.score(found))
    assert {row["what"].split()[0] for row in rows} == {"operations", "regulated:"}
    highest = max(row["value"] for row in rows if row["what"] == "operations per second")
    assert highest == pytest.approx(found.ops_per_s)


def test_the_tree_joins_children_to_parents_and_marks_the_way_to_the_best(
    run: HandmadeSearch,
) -> None:
    chart = block_of(run.folder).tree
    assert chart is not None
    rows = rows_of(chart)
    edges = [row for row in rows if "from_turn" in row]
    dots = {row["candidate"]: row for row in rows if "candidate" in row}
    # The third was cut before an evaluation: it has no place on the axis.
    assert set(dots) == {"r00000-w00000", "r00001-w00000"}
    assert [(edge["from_turn"], edge["turn"]) for edge in edges] == [(1, 2)]
    assert [(edge["from_accuracy"], edge["accuracy"]) for edge in edges] == [(0.6, 0.8)]
    assert all(each["in line"] for each in (*edges, *dots.values()))


def test_the_best_is_one_candidate_in_words_tree_and_drawing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = HandmadeSearch(tmp_path / "runs", monkeypatch)
    notes = one_worker(made)
    notes.insert(-2, (95.0, "evaluation", evaluated(1, 0.9)))  # of the one that the end cut
    made.worker(0, notes)
    block = block_of(made.folder)
    assert block.winner == "r00002-w00000 (cut)"
    assert dict(block.rows)["best model"].endswith(block.winner)
    dots = [row for row in rows_of(block.tree) if "candidate" in row and row["in line"]]
    assert max(dots, key=lambda row: row["accuracy"])["candidate"] == "r00002-w00000"


def test_the_rounds_of_the_tree_are_whole(run: HandmadeSearch) -> None:
    tree = block_of(run.folder).tree
    assert tree is not None
    axes = [layer["encoding"]["x"]["axis"]["values"] for layer in tree["layer"]]
    assert axes and all(ticks == [1, 2] for ticks in axes)
    assert len(search_charts._round_ticks(500)) <= 12


def test_a_search_that_has_not_begun_is_said_last_and_has_no_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained_folder: RunFolder
) -> None:
    training = score(Contents(trained_folder)).trainings[0]
    made = HandmadeSearch(tmp_path / "searches", monkeypatch)
    contents = Contents(RunFolder.open(made.folder.path))
    found = score(contents)
    assert search_blocks(contents, found) == []
    first, last = results(found.model_copy(update={"trainings": (training,)}))
    assert first.name == "image-classification"
    assert last.state == "no candidate was started"


def test_a_large_family_shows_the_best_and_their_ancestors(
    run: HandmadeSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = score(Contents(run.folder)).searches
    worst = found.candidates[0].model_copy(update={"candidate": "r00007-w00000", "accuracy": 0.1})
    many = found.model_copy(update={"candidates": (*found.candidates, worst)})
    monkeypatch.setattr(search_charts, "MAX_FAMILY", 1)
    names = {row["candidate"] for row in rows_of(search_charts.tree(many)) if "candidate" in row}
    assert names == {"r00000-w00000", "r00001-w00000"}


def test_a_column_of_candidates_that_is_empty_everywhere_is_left_out(run: HandmadeSearch) -> None:
    block = block_of(run.folder)
    assert "kernel" not in block.names and "batch" in block.names
    assert {len(row) for row in block.candidates} == {len(block.names)}


def test_slices_hold_what_was_tuned_alone(run: HandmadeSearch) -> None:
    rows = rows_of(block_of(run.folder).slices)
    assert {row["candidate"] for row in rows} == {"r00001-w00000"}
    assert {row["kernel"] for row in rows if "kernel" in row} == {"unchanged"}
    assert {row["batch"] for row in rows if "batch" in row} == {100}


def test_slices_are_in_the_order_of_their_values(run: HandmadeSearch) -> None:
    (found,) = score(Contents(run.folder)).searches
    one = found.candidates[1]
    tried = tuple(one.model_copy(update={"kernel": kernel}) for kernel in (7, None, 5, 3))
    chart = search_charts.slices(found.model_copy(update={"candidates": tried}))
    assert chart is not None
    kernels = chart["hconcat"][1]["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert kernels == ["unchanged", 3, 5, 7]


def test_the_bars_add_up_to_the_time_of_the_worker(run: HandmadeSearch) -> None:
    rows = {row["what"]: row["end"] - row["start"] for row in rows_of(block_of(run.folder).spent)}
    # 2 s of loading; of 100 s there are 10, 8 and 7 before the three candidates, each of which is
    # built for 2 s.
    assert sum(rows.values()) == pytest.approx(102)
    assert (rows["start-up"], rows["idle"], rows["building"]) == pytest.approx((2, 19, 6))
    assert rows["training"] == pytest.approx(75)


def test_utilisation_is_that_of_the_devices_within_the_search(run: HandmadeSearch) -> None:
    rows = rows_of(block_of(run.folder).utilisation)
    assert {row["name"] for row in rows} == {"accelerators"}
    assert all(90 <= row["value"] <= 99 and 0 <= row["time"] <= 100 for row in rows)


def test_a_drawing_has_a_box_a_layer_and_marks_what_is_new() -> None:
    first = small("tiny", (3, 8, 8))
    wider = apply(first, Morph(kind="widen", layer=first.layers[1].id, filters=16))
    svg = ElementTree.fromstring(draw_network(wider, first))
    name = "{http://www.w3.org/2000/svg}"
    assert len(svg.findall(f"{name}rect")) == 1 + len(wider.chain)
    assert len(svg.findall(f"{name}path")) == len(wider.skips())
    assert len(svg.findall(f"{name}circle")) == 1
    texts = [text.text for text in svg.findall(f"{name}text")]
    assert "1×1 conv, 16" in texts and "16×4×4" in texts
    assert not ElementTree.fromstring(draw_network(first, first)).findall(f"{name}circle")


def test_a_large_network_can_be_drawn() -> None:
    svg = draw_network(resnet50())
    assert "7×7 conv, 64, stride 2" in svg and "2048×7×7" in svg
