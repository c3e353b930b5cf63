"""The outcome as files: JUnit XML, lines for ReFrame, and two printed pages."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.accept_runs import THROUGHPUT, on_nodes, only, reference, repeats, under_test
from tests.support.browser import Browser, chromium
from tests.support.paths import ROOT
from vflops.errors import RunFailed, UsageError
from vflops.studies.accept import accept_page, accept_text, closed_task
from vflops.studies.accept.acceptance import Acceptance, JudgedFigure, JudgedRun
from vflops.studies.accept.closed_task import TaskState
from vflops.studies.accept.judging import judge
from vflops.studies.accept.junit import junit_text
from vflops.studies.accept.outcome_files import write_outcome

SHEET = b"/Type /Page\n"
"""Marks each page of a PDF that Chromium printed."""
A4 = {"width": 695, "height": 1024, "deviceScaleFactor": 1, "mobile": False}
"""A sheet less its margins."""
OVERFLOW = (
    "[...document.querySelectorAll('.promises td, .card:has(.promises)')]"
    ".filter(box => box.scrollWidth > box.clientWidth + 1).length"
)
"""The number of cells and tables that do not have room for their text."""


@pytest.fixture(scope="module")
def rejected(tmp_path_factory: pytest.TempPathFactory) -> Acceptance:
    """Three runs on two nodes, of which the second is slow; a promised figure is missing."""
    folder = tmp_path_factory.mktemp("runs")
    runs = [on_nodes(folder, day, (n, 1.15 * n)) for day, n in enumerate((0.999, 1.0, 1.001))]
    made = only(reference(*runs), THROUGHPUT, at_least=86.0, node_spread=0.5)
    missing = made.figure[0].model_copy(update={"name": "gemm.peak.<fp32>"})
    return judge(made.model_copy(update={"figure": (*made.figure, missing)}), under_test(*runs))


def test_junit_counts_its_cases(rejected: Acceptance) -> None:
    root = ElementTree.fromstring(junit_text(rejected))
    suite = root.find("testsuite")
    assert suite is not None
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert (
        len(cases) == int(suite.get("tests", "")) == 2 + 1 + 1 + 3
    )  # nodes, spread, missing, runs
    failed = [name for name, case in cases.items() if case.find("failure") is not None]
    errors = [name for name, case in cases.items() if case.find("error") is not None]
    assert failed == [f"{THROUGHPUT} on node2"] and errors == ["gemm.peak.<fp32>"]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert (root.get("tests"), root.get("failures")) == (suite.get("tests"), "1")


def test_junit_has_runs_that_are_not_valid_and_no_control_characters(
    rejected: Acceptance,
) -> None:
    bad = rejected.runs[0].model_copy(update={"faults": ("not valid: \x1b[31m",)})
    changed = rejected.model_copy(update={"runs": (bad,), "faults": ("2 nodes are promised",)})
    root = ElementTree.fromstring(junit_text(changed))
    messages = [error.get("message") for error in root.iter("error")]
    assert messages[-2:] == [r"not valid: \x1b[31m", "2 nodes are promised"]
    assert root.get("errors") == "3"


def test_lines_name_every_figure_with_its_unit(rejected: Acceptance) -> None:
    lines = list(accept_text.lines(rejected))
    assert lines[0] == "verdict: rejected"
    pattern = re.compile(r"^(\S+): (\S+) (\S+)$")
    found = {m[1]: (float(m[2]), m[3]) for line in lines[1:] if (m := pattern.match(line))}
    assert len(found) == len(lines) - 1
    by_node = [found[f"{THROUGHPUT}@node{number}"] for number in (1, 2)]
    assert found[THROUGHPUT] == by_node[1] and by_node[1] < by_node[0]  # the worst node
    assert found[f"{THROUGHPUT}.node_spread"][1] == "share"
    assert "gemm.peak.<fp32>" not in found


def test_the_reframe_example_reads_the_lines(rejected: Acceptance) -> None:
    example = (ROOT / "docs" / "examples" / "reframe_accept.py").read_text()
    compile(example, "reframe_accept.py", "exec")
    pattern = re.search(r'LINE = r"(.+)"', example)
    verdict = re.search(r'VERDICT = r"(.+)"', example)
    assert pattern and verdict
    lines = "\n".join(accept_text.lines(rejected))
    read = {name: float(value) for name, value, _ in re.findall(pattern[1], lines, re.M)}
    assert read[THROUGHPUT] == min(f.mean or 0 for f in rejected.figures if f.name == THROUGHPUT)
    assert len(read) == len(lines.splitlines()) - 1  # all but the verdict
    assert not re.search(verdict[1], lines, re.M)
    assert re.search(verdict[1], lines.replace("rejected", "accepted"), re.M)


def test_the_outcome_is_written_as_data_for_ci_and_as_a_page(
    rejected: Acceptance, tmp_path: Path
) -> None:
    reference_file = tmp_path / "r.toml"
    reference_file.write_text("x")
    files = write_outcome(rejected, tmp_path / "o", reference=reference_file)
    assert [file.name for file in files] == [f"acceptance.{k}" for k in ("json", "xml", "html")]
    assert Acceptance.read(files[0]) == rejected
    page = files[2].read_text()
    assert "gemm.peak.&lt;fp32&gt;" in page and "<fp32>" not in page
    assert "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881" in page


def test_the_page_is_printed_on_two_sheets(rejected: Acceptance, tmp_path: Path) -> None:
    chromium()  # the test is skipped without one
    *_, page, pdf = write_outcome(rejected, tmp_path, pdf=True)
    assert pdf.read_bytes().count(SHEET) == 2
    text = page.read_text()
    for words in ("rejected</span>", f"{THROUGHPUT} on node2", "For the supplier", "node1"):
        assert words in text, words


def test_a_large_test_with_long_texts_prints_on_two_sheets_too(
    rejected: Acceptance, tmp_path: Path
) -> None:
    *_, page = write_outcome(_large(rejected), tmp_path)
    with Browser() as browser:
        tab = browser.open(page)
        assert not tab.errors and not tab.requests
        assert tab.pdf().count(SHEET) == 2
        text = tab.run("document.body.innerText")
        widths = [browser.open(page, width=width).run(OVERFLOW) for width in (960, 390)]
        tab.call("Emulation.setEmulatedMedia", media="print")
        tab.call("Emulation.setDeviceMetricsOverride", **A4)
        assert [*widths, tab.run(OVERFLOW)] == [0, 0, 0]
    assert "178 rejected" in text and "more in acceptance.json" in text
    assert "30 more nodes are not shown; 30 of them have rejected figures" in text


def _large(small: Acceptance) -> Acceptance:
    """200 rejected figures on 40 nodes, 20 runs, and texts far longer than any real one."""
    figures = tuple(
        JudgedFigure(
            **small.figures[1].model_dump(exclude={"name", "place", "reason", "unit"}),
            name=f"{'convolution.weight-gradient.' * 3}{number}",
            place=f"node-{number % 40}.{'partition.' * 8}example.org",
            reason="because " * 80,
            unit="VFLOPS/W",
        )
        for number in range(200)
    )
    runs = tuple(
        JudgedRun(
            **small.runs[0].model_dump(exclude={"run", "faults", "machine"}),
            run=f"20260101T000000Z-image-classification-{number:06}",
            machine="a very long processor name " * 20,
            faults=("a rule that is not met, with much evidence: " * 20,) * 3,
        )
        for number in range(20)
    )
    made = small.reference.model_copy(update={"contract": "The supplier promises. " * 100})
    return small.model_copy(update={"figures": figures, "runs": runs, "reference": made})


def test_without_a_browser_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--pdf needs a browser") as raised:
        accept_page.write_pdf(tmp_path / "page.html", tmp_path / "page.pdf")
    assert "print it" in (raised.value.hint or "")


def test_a_browser_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho cannot start >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "page.html").write_text("")
    with pytest.raises(RunFailed, match=r"did not print .*: cannot start"):
        accept_page.write_pdf(tmp_path / "page.html", tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


def test_a_missed_target_is_why_a_time_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_task, "task_state", lambda *_: TaskState("closed", "c"))
    runs = repeats(tmp_path, 1.0, 1.001, quality=0.7)
    name = "image-classification.time_to_quality"
    good = repeats(tmp_path / "good", 1.0)
    acceptance = judge(only(reference(*good), name), under_test(*runs))
    assert "the target was not reached" in (acceptance.figures[0].reason or "")
