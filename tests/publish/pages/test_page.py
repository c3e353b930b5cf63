"""The report of complete and broken runs, and the library that draws its charts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from markupsafe import escape

from tests.support.stored_machines import Machine
from vflops.machine.system.fact_text import format_fact
from vflops.publish.pages import page
from vflops.publish.pages.page import chart_library, library_versions
from vflops.publish.ranking.system_summary import system_name
from vflops.publish.report import report_page
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import Fact, Layer, SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.roofline.analysis import measured_ceilings


def test_text_from_the_record_is_escaped(run_folder: RunFolder) -> None:
    write_report(Contents(run_folder))
    page = run_folder.report_file.read_text()
    assert "Test CPU &lt;1&gt;" in page
    assert "Test CPU <1>" not in page


def test_an_incomplete_run_says_so_on_its_page(run_folder: RunFolder) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-3]) + lines[-3][:30])
    write_report(Contents(run_folder))
    page = run_folder.report_file.read_text()
    assert '<strong class="badge">Not finished:</strong>' in page
    assert "200 GFLOPS" in page


def test_a_run_that_measured_nothing_still_has_a_page(run_folder: RunFolder) -> None:
    shutil.rmtree(run_folder.path / "jobs")
    run_folder.system_file.unlink()
    write_report(Contents(run_folder))
    assert "no job was started" in run_folder.report_file.read_text()


def test_the_same_folder_gives_the_same_page(run_folder: RunFolder) -> None:
    write_report(Contents(run_folder))
    first = run_folder.report_file.read_bytes()
    write_report(Contents(RunFolder.open(run_folder.path)))
    assert run_folder.report_file.read_bytes() == first


@pytest.fixture
def bundles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The libraries that were bundled, by their version; the cache is empty."""
    made: list[str] = []

    def bundle(vl_version: str) -> str:
        made.append(vl_version)
        return "charts</script>"

    sha256 = hashlib.sha256(b"charts<\\/script>").hexdigest()
    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setattr(page, "LIBRARY_SHA256", {library_versions(): sha256})
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    return made


def test_the_chart_library_is_made_once_and_does_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundles: list[str]
) -> None:
    for place, times in ((str(tmp_path), 1), (str(tmp_path), 1), ("/dev/null/none", 2)):
        monkeypatch.setenv("VFLOPS_CACHE", place)
        assert chart_library.__wrapped__() == "charts<\\/script>"
        assert len(bundles) == times


def _foreign(file: Path) -> None:
    file.write_text("alert(1)")


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _huge(file: Path) -> None:
    os.truncate(file, 1 << 40)


@pytest.mark.parametrize("harm", [_foreign, _pipe, _huge])
def test_a_cached_library_with_another_hash_is_replaced(
    tmp_path: Path, bundles: list[str], harm: Callable[[Path], None]
) -> None:
    chart_library.__wrapped__()
    (cached,) = tmp_path.glob("charts-*/library.js")
    harm(cached)
    for _ in range(2):
        assert chart_library.__wrapped__() == "charts<\\/script>"
    assert cached.read_text() == "charts<\\/script>" and len(bundles) == 2


def test_a_library_whose_hash_is_not_known_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundles: list[str]
) -> None:
    monkeypatch.setattr(page, "LIBRARY_SHA256", {})
    for times in (1, 2):
        assert chart_library.__wrapped__() == "charts<\\/script>"
        assert len(bundles) == times and not list(tmp_path.iterdir())


def test_the_known_hash_is_that_of_the_installed_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = page.LIBRARY_SHA256.get(library_versions())
    if known is None:
        pytest.skip("the installed chart library is another one")
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    assert hashlib.sha256(chart_library.__wrapped__().encode()).hexdigest() == known


def test_the_card_and_the_roofline_have_one_ceiling_of_a_kind() -> None:
    def measured(benchmark: str, case: str, value: float, caveat: str | None) -> Measurement:
        return Measurement(
            benchmark=benchmark,
            case=case,
            precision="fp32",
            device="cpu",
            unit="FLOPS",
            value=value,
            caveat=caveat,
        )

    found = [
        measured("convolution", "forward", 56.3e9, None),
        measured("convolution", "input-gradient", 63.2e9, "unsteady: the samples differ"),
    ]
    (tile,) = report_page._tiles(found)
    assert measured_ceilings(found).compute["convolution", "fp32"] == 63.2e9
    assert (tile["name"], tile["value"]) == ("fp32 convolution", "63.2 GFLOPS")
    assert tile["note"] == "unsteady: the samples differ"


def test_a_stored_machine_has_its_page(
    stored_run: RunFolder,
    machine: Machine,
    described: SystemRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report_page, "chart_library", lambda: "")
    contents = Contents(stored_run)
    write_report(contents)
    page = stored_run.report_file.read_text()
    for layer in described.layers:
        for fact in layer.facts:
            assert f"<td>{escape(fact.reason or format_fact(fact))}</td>" in page, fact.name
    (headline,) = re.findall("<h1>(.*?)</h1>", page)
    assert "None" not in headline
    if machine.gpus:
        assert headline == f"{machine.gpus} × NVIDIA H200"
    findings = {finding.rule: finding.verdict for finding in contents.once(check).findings}
    assert findings["system"] == "pass"
    assert system_name(described, []) and "None" not in system_name(described, [])


@pytest.mark.parametrize(
    ("usable", "headline"), [(4, "2 × A100, 1 × H200"), (0, "unknown processor")]
)
def test_usable_accelerators_of_several_models_are_all_in_the_headline(
    run_folder: RunFolder, usable: int, headline: str
) -> None:
    system = SystemRecord.read(run_folder.system_file)
    models = ("A100", "A100", None, "H200")
    facts = [
        Fact(name="accelerators", value=usable, source="x"),
        *(
            Fact(name=f"accelerator {n} model", value=m, source="x", reason=None if m else "?")
            for n, m in enumerate(models)
        ),
    ]
    hardware = Layer(name="hardware", facts=tuple(facts))
    system.model_copy(update={"layers": (hardware, *system.layers[1:])}).write(
        run_folder.system_file
    )
    write_report(Contents(run_folder))
    assert f"<h1>{headline}</h1>" in run_folder.report_file.read_text()
