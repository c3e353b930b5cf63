"""Exhibits: what a job left becomes figures of the page or a sentence of it, never an error."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.trained_runs import WORKLOAD, HandmadeRun, Note, course, job
from vflops.publish.report import exhibits
from vflops.publish.report.exhibits import ExhibitFigures
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.workloads.contract.exhibit import Figure, Passage
from vflops.workloads.contract.registry import workload

GOOD = course(0.4, 0.85, 0.88)
SVG = '<svg viewBox="0 0 1 1" role="img"><title>one</title></svg>'


def drawn(arrays: Mapping[str, NDArray[Any]]) -> list[Figure]:
    """Two figures that say what they were made of."""
    total = f"the sum is {int(arrays['numbers'].sum())}"
    chart = {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {"x": {"field": "x"}}}
    return [Figure("A <picture>", total, svg=SVG), Figure("A chart", "of one point", chart=chart)]


def refused(arrays: Mapping[str, NDArray[Any]]) -> list[Figure]:
    raise RuntimeError("no <colours> left")


def no_figures(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    return ["a picture"]


def no_chart(arrays: Mapping[str, NDArray[Any]]) -> list[Figure]:
    return [Figure("one", "with what no file can hold", chart={"x": float("nan")})]


@pytest.fixture
def maker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a function of this file the one that draws the workload's exhibits."""

    def use(function: Any) -> None:
        name = function if function is None or isinstance(function, str) else function.__name__
        target = name if name is None or ":" in name else f"{__name__}:{name}"
        spec = replace(workload(WORKLOAD), exhibit=target)
        monkeypatch.setattr(exhibits, "workload", lambda name: spec)

    use(drawn)
    return use


def packed(**arrays: Any) -> bytes:
    room = io.BytesIO()
    np.savez_compressed(room, **arrays)
    return room.getvalue()


def exhibited(content: bytes, **facts: Any) -> Note:
    sha256 = hashlib.sha256(content).hexdigest()
    return "exhibit", {
        "file": "exhibit.npz",
        "sha256": sha256,
        "size_bytes": len(content),
        **facts,
    }


def trained_with(run: HandmadeRun, content: bytes, number: int = 1, **facts: Any) -> Path:
    """A job that left ``content`` to be shown; where it is."""
    note = exhibited(content, **facts)
    place = run.attempt(number, 1000.0 * number, *GOOD[:-1], note, GOOD[-1]) / "exhibit.npz"
    place.write_bytes(content)
    return place


def shown(folder: RunFolder) -> ExhibitFigures:
    contents = Contents(RunFolder.open(folder.path))
    scores = score(contents).trainings
    pairs = zip(contents.training_jobs, scores, strict=True)
    found = exhibits.exhibit_figures([(trained, each.complete) for trained, each in pairs])
    assert found is not None
    return found


def page_of(folder: RunFolder) -> str:
    write_report(Contents(RunFolder.open(folder.path)))
    return folder.report_file.read_text()


@pytest.fixture
def planned(handmade_run: HandmadeRun) -> HandmadeRun:
    handmade_run.plan(job(1))
    return handmade_run


NUMBERS = packed(numbers=np.arange(5))


class TestFigures:
    """What is shown of a sound exhibit."""

    def test_the_workloads_function_makes_figures_of_the_arrays(
        self, planned: HandmadeRun, maker: Any
    ) -> None:
        trained_with(planned, NUMBERS)
        found = shown(planned.folder)
        assert found.fault is None and found.source is None
        assert [figure.caption for figure in found.figures] == ["the sum is 10", "of one point"]

    def test_a_training_without_an_exhibit_has_no_place_for_one(
        self, planned: HandmadeRun, maker: Any
    ) -> None:
        planned.attempt(1, 1000.0, *GOOD)
        (trained,) = Contents(planned.folder).training_jobs
        assert trained.exhibit is None
        assert exhibits.exhibit_figures([(trained, True)]) is None

    def test_the_newest_attempts_is_shown(self, planned: HandmadeRun, maker: Any) -> None:
        old = packed(numbers=np.ones(3))
        place = planned.attempt(1, 0.0, *course(0.3)[:-2], exhibited(old))
        (place / "exhibit.npz").write_bytes(old)
        trained_with(planned, NUMBERS)
        assert shown(planned.folder).figures[0].caption == "the sum is 10"

    def test_of_several_seeds_the_first_complete_one_is_shown_and_said(
        self, handmade_run: HandmadeRun, maker: Any
    ) -> None:
        handmade_run.plan(job(1), job(2), job(3))
        early = packed(numbers=np.ones(3))
        place = handmade_run.attempt(1, 0.0, *course(0.3)[:-2], exhibited(early))
        (place / "exhibit.npz").write_bytes(early)
        trained_with(handmade_run, NUMBERS, number=2)
        trained_with(handmade_run, packed(numbers=np.zeros(1)), number=3)
        found = shown(handmade_run.folder)
        assert found.source == "of seed 2, the first of 2 that finished with an exhibit"
        assert found.figures[0].caption == "the sum is 10"

    def test_one_of_a_training_that_did_not_end_says_so(
        self, planned: HandmadeRun, maker: Any
    ) -> None:
        place = planned.attempt(1, 0.0, *course(0.3)[:-2], exhibited(NUMBERS))
        (place / "exhibit.npz").write_bytes(NUMBERS)
        assert shown(planned.folder).source == "of seed 1, which did not finish"

    def test_a_figure_is_a_picture_or_a_chart(self) -> None:
        with pytest.raises(ValueError, match="svg, a chart or passages"):
            Figure("neither", "")
        with pytest.raises(ValueError, match="svg, a chart or passages"):
            Figure("both", "", svg=SVG, chart={})

    def test_the_page_holds_them_with_their_words_escaped(
        self, handmade_run: HandmadeRun, maker: Any
    ) -> None:
        handmade_run.plan(job(1), job(2))
        trained_with(handmade_run, NUMBERS)
        handmade_run.attempt(2, 2000.0, *GOOD)
        page = page_of(handmade_run.folder)
        assert SVG in page
        assert "A &lt;picture&gt;" in page and "A <picture>" not in page
        assert "of seed 1, the only one that finished with an exhibit" in page
        assert 'class="chart" id="training-0-exhibit-1"' in page


class TestFaults:
    """Whatever is wrong is a sentence of a page that is there all the same."""

    def fault(self, folder: RunFolder) -> str:
        found = shown(folder)
        assert found.figures == ()
        assert found.fault is not None
        return found.fault

    def test_a_changed_file(self, planned: HandmadeRun, maker: Any) -> None:
        trained_with(planned, NUMBERS).write_bytes(packed(numbers=np.zeros(5)))
        assert "is not the exhibit that the job wrote" in self.fault(planned.folder)

    def test_a_missing_file(self, planned: HandmadeRun, maker: Any) -> None:
        trained_with(planned, NUMBERS).unlink()
        assert "exhibit.npz cannot be read: No such file" in self.fault(planned.folder)

    def test_a_folder_in_its_place(self, planned: HandmadeRun, maker: Any) -> None:
        place = trained_with(planned, NUMBERS)
        place.unlink()
        place.mkdir()
        assert "exhibit.npz cannot be read: it is not a regular file" in self.fault(planned.folder)

    def test_a_file_that_is_too_large(
        self, planned: HandmadeRun, maker: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trained_with(planned, NUMBERS)
        monkeypatch.setattr(exhibits, "MAX_BYTES", 100)
        assert "cannot be read: it is larger than 100 bytes" in self.fault(planned.folder)

    def test_arrays_that_unpack_to_too_much(
        self, planned: HandmadeRun, maker: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = packed(zeros=np.zeros(100_000, dtype=np.uint8))
        assert len(whole) < 1000
        trained_with(planned, whole)
        monkeypatch.setattr(exhibits, "MAX_BYTES", 10_000)
        assert "its arrays have 100,128 bytes, at most 40,000" in self.fault(planned.folder)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"no arrays",
            NUMBERS[:100],
            packed(numbers=np.array([{"a": 1}], dtype=object)),
        ],
        ids=["empty", "text", "cut off", "pickled"],
    )
    def test_a_file_without_plain_arrays(
        self, planned: HandmadeRun, maker: Any, content: bytes
    ) -> None:
        trained_with(planned, content)
        assert "cannot be read as arrays" in self.fault(planned.folder)

    @pytest.mark.parametrize("name", ["../../../run.json", "/etc/passwd", "..", ".lock", ""])
    def test_a_name_that_leads_out_of_the_folder(
        self, planned: HandmadeRun, maker: Any, name: str
    ) -> None:
        trained_with(planned, NUMBERS, file=name)
        assert "not a exhibit event" in self.fault(planned.folder)

    def test_a_function_that_fails(self, planned: HandmadeRun, maker: Any) -> None:
        trained_with(planned, NUMBERS)
        maker(refused)
        assert "RuntimeError: no <colours> left" in self.fault(planned.folder)
        page = page_of(planned.folder)
        assert "No figures: " in page and "Quality over epochs" in page
        assert "no &lt;colours&gt; left" in page

    @pytest.mark.parametrize(
        ("function", "reason"),
        [
            (no_figures, "'a picture' is not a Figure"),
            (no_chart, "ValueError: Out of range float"),
            ("no.such.module:figures", "no.such.module:figures cannot be loaded"),
            (None, "image-classification cannot draw figures from its exhibit"),
        ],
    )
    def test_a_function_that_gives_no_figures(
        self, planned: HandmadeRun, maker: Any, function: Any, reason: str
    ) -> None:
        trained_with(planned, NUMBERS)
        maker(function)
        assert reason in self.fault(planned.folder)

    def test_a_workload_that_is_not_installed_here(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job(1, workload="quantum-weather"))
        trained_with(handmade_run, NUMBERS)
        assert "unknown workload 'quantum-weather'" in self.fault(handmade_run.folder)


def passages(arrays: Mapping[str, NDArray[Any]]) -> list[Figure]:
    return [
        Figure("Text", "a caption", passages=(Passage("<b>begins</b>", (("who", "a & <c>"),)),))
    ]


def test_passages_of_text_are_escaped(handmade_run: HandmadeRun, maker: Any) -> None:
    maker(passages)
    handmade_run.plan(job())
    trained_with(handmade_run, packed(numbers=np.arange(3)))
    write_report(Contents(RunFolder.open(handmade_run.folder.path)))
    page = handmade_run.folder.report_file.read_text()
    assert "&lt;b&gt;begins&lt;/b&gt;" in page and "<b>begins" not in page
    assert "<dt>who</dt><dd>a &amp; &lt;c&gt;</dd>" in page


def test_a_reason_for_no_exhibit_is_shown(handmade_run: HandmadeRun) -> None:
    handmade_run.plan(job())
    skipped = ("exhibit-skipped", {"reason": "the model is divided between 4 ranks"})
    handmade_run.attempt(1, 1000.0, *GOOD[:-1], skipped, GOOD[-1])
    found = shown(handmade_run.folder)
    assert (found.figures, found.fault) == ((), "the model is divided between 4 ranks")
