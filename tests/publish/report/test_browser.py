"""The report as a person sees it: in a real browser, by day and night, on a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import HandmadeRun, course, job, started, two_seeds, write_telemetry
from vflops.publish.report import exhibits
from vflops.publish.report.exhibits import ExhibitFigures
from vflops.publish.report.report_page import write_report
from vflops.record.formats.job import Goal
from vflops.record.formats.system import LAYERS, Fact, Layer, SystemRecord
from vflops.record.readout.contents import Contents
from vflops.workloads.contract.exhibit import Figure

HOSTILE = "<img src=x onerror='window.harmed=1'></script><script>window.harmed=1</script>"
POINT = {"data": {"values": [{"x": 1}]}, "mark": "point", "encoding": {"x": {"field": "x"}}}
CONTRAST = """(() => {
  const channel = (each) => (each /= 255) <= .03928 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(channel);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
  const worst = (selector, property) => Math.min(...[...document.querySelectorAll(selector)]
    .map((each) => light(getComputedStyle(each)[property]))
    .map((own) => (Math.max(own, paper) + .05) / (Math.min(own, paper) + .05)));
  return {
    paper, page: worst("p, td, th, h2, small", "color"), lines: worst(".mark-line path", "stroke"),
    text: worst(".chart :is(.role-axis-label, .role-axis-title, .role-legend-label) text", "fill"),
  };
})()"""


TOO_WIDE = """[...document.querySelectorAll("body *")]
  .filter((e) => !e.closest("svg") && e.getClientRects().length)
  .filter((e) => {
    for (let box = e.parentElement; box; box = box.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return false;
    }
    return e.getBoundingClientRect().right > innerWidth + 1 || e.getBoundingClientRect().left < -1;
  })
  .map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`)"""
"""The elements that reach beyond the screen, except in a box that scrolls."""


def make_page(place: Path, patch: pytest.MonkeyPatch, name: str) -> Path:
    """Two seeds, another workload, and a training with ``name`` wherever a record has a name."""
    run = HandmadeRun(place, patch)
    two_seeds(run, MEASUREMENTS)
    goal = Goal(quality=name, better="lower", target=0.5, exponent=5)
    other = job(4, workload="extreme-weather")
    run.plan(job(3, workload=name, goal=goal), other, ceilings=MEASUREMENTS)
    notes = [started(device_name=name), *course(0.9, 0.7)[1:]]
    write_telemetry(run.attempt(3, 2000.0, *notes), 2000.0, 40)
    run.attempt(4, 3000.0, *course(0.9))
    facts = (
        Fact(name="cpu model", value=name, source=name),
        Fact(name="usable cpus", value=2, source="test"),
    )
    layers = tuple(Layer(name=layer, facts=facts) for layer in LAYERS)
    system = SystemRecord(gathered_utc="2026-01-01T00:00:00+00:00", layers=layers)
    system.write(run.folder.system_file)
    figures = ExhibitFigures(name, (Figure(name, name, chart=POINT),), name)
    patch.setattr(exhibits, "exhibit_figures", lambda jobs: figures)
    write_report(Contents(run.folder))
    return run.folder.report_file


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report in which names want to harm the reader."""
    with pytest.MonkeyPatch.context() as patch:
        return make_page(tmp_path_factory.mktemp("report"), patch, HOSTILE)


@pytest.fixture(scope="module")
def suite(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Tab:
    """A report of three workloads in a window of 1280 × 800."""
    with pytest.MonkeyPatch.context() as patch:
        made = make_page(tmp_path_factory.mktemp("suite"), patch, "language-model")
    tab = browser.open(made, width=1280, height=800)
    assert tab.run("window.chartsDrawn") is True
    return tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started_browser:
        yield started_browser


@pytest.fixture(scope="module")
def opened(browser: Browser, page: Path) -> Tab:
    tab = browser.open(page)
    assert tab.run("window.chartsDrawn") is True
    return tab


@pytest.fixture
def tab(opened: Tab) -> Iterator[Tab]:
    """The page by day, which is quiet to the end."""
    scheme(opened, "light")
    yield opened
    assert is_quiet(opened)


def scheme(tab: Tab, name: str) -> None:
    tab.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}]
    )


def is_quiet(tab: Tab) -> bool:
    """No error, no request, and nothing that a name of the run made happen."""
    asked = [address for address in tab.requests if not address.startswith("data:")]
    return (tab.errors, asked, tab.run("window.harmed")) == ([], [], None)


def test_every_chart_is_drawn_as_wide_as_its_card(tab: Tab) -> None:
    sizes = tab.run(
        "[...document.querySelectorAll('.chart')].map(e => [e.id, e.clientWidth,"
        " e.querySelector('svg')?.getBoundingClientRect().width ?? 0])"
    )
    names = {name for name, _, _ in sizes}
    own = ("quality", "loss", "budget", "throughput", "power", "utilisation", "traffic", "kernels")
    assert names >= {"roofline", "search", "messages", "training-0-exhibit-0"}
    assert names >= {f"training-0-{name}" for name in own}
    for name, room, width in sizes:
        assert 0 < width <= room, name
        assert "exhibit" in name or width > 0.9 * room, name


def test_names_from_the_record_are_shown_as_they_are(tab: Tab) -> None:
    assert tab.texts("h1") == [f"{HOSTILE}, 2 cores"]
    assert f"Training: {HOSTILE}" in tab.texts("h2")


@pytest.mark.parametrize("name", ["light", "dark"])
def test_all_can_be_read_by_day_and_by_night_and_a_change_needs_no_reload(
    tab: Tab, name: str
) -> None:
    scheme(tab, name)
    found = tab.run(CONTRAST)
    assert (found["paper"] < 0.1) is (name == "dark")
    assert found["page"] >= 4.5 and found["text"] >= 4.5, found
    assert found["lines"] >= 3, found


def test_a_chart_is_saved_in_the_colours_of_paper(tab: Tab) -> None:
    scheme(tab, "dark")
    tab.run(
        "void (window.saved = new Promise(done => { HTMLAnchorElement.prototype.click ="
        " function () { done([this.download, this.href.slice(0, 14)]) } }))"
    )
    tab.click("#training-0-quality ~ .save button:nth-child(2)")
    assert tab.run("window.saved") == ["training-0-quality.png", "data:image/png"]


def resized(tab: Tab, width: int, height: int, media: str = "") -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    tab.call("Emulation.setDeviceMetricsOverride", **size)
    tab.call("Emulation.setEmulatedMedia", media=media)


@pytest.mark.parametrize(("width", "screens_px"), [(1280, 800), (390, 2 * 844)])
def test_the_answer_fits_on_one_screen_and_on_two_of_a_phone(
    suite: Tab, width: int, screens_px: int
) -> None:
    resized(suite, width, 800)
    ends = suite.run(
        "['.badge', '.results tr:last-child td', '.small-roofline', '.next .command', '#answer']"
        ".map(name => document.querySelector(name).getBoundingClientRect().bottom + scrollY)"
    )
    assert len(suite.texts("#answer th[scope=row]")) == 3
    assert min(ends) > 0 and max(ends) <= screens_px, ends
    resized(suite, 1280, 800)


def test_a_link_opens_its_section_without_a_script(browser: Browser, page: Path) -> None:
    tab = browser.open("about:blank")
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.go(f"{page.as_uri()}#training-0-loss")
    tab.call("Emulation.setScriptExecutionDisabled", value=False)
    opened = "[...document.querySelectorAll('details[open] > summary :is(h2, h3)')]"
    titles = tab.run(f"{opened}.map(e => e.innerText)")
    assert titles == ["Training: image-classification", "Loss over epochs"]
    top = tab.run("document.querySelector('#training-0-loss').getBoundingClientRect().top")
    assert -100 < top < 900


def test_a_command_is_copied_and_all_sections_open_at_once(tab: Tab) -> None:
    tab.run(
        "void (window.copied = new Promise(done => { navigator.clipboard.writeText ="
        " async (text) => done(text) }))"
    )
    tab.click(".next .copy")
    (shown,) = tab.texts(".next .command")
    assert tab.run("window.copied") == " ".join(shown.split()) and shown.startswith("vflops ")
    closed = "document.querySelectorAll('.parts details:not([open])').length"
    assert tab.run(closed) > 10
    tab.click(".open-all")
    assert tab.run(closed) == 0 and tab.texts(".open-all") == ["close all sections"]
    tab.run("document.querySelectorAll('.parts details').forEach(e => { e.open = false })")


def test_paper_has_the_answer_first_and_few_pages_and_nothing_is_cut(suite: Tab) -> None:
    closed = "document.querySelectorAll('details:not([open])').length"
    before = suite.run(closed)
    suite.run(
        "window.addEventListener('beforeprint', () => { window.printed ="
        " [...document.querySelectorAll('.part:not([open]) > section')].map(e => e.id) })"
    )
    pdf = suite.pdf()
    assert pdf.startswith(b"%PDF") and 4 <= pdf.count(b"/Type /Page\n") <= 10
    # What is left out is folded to one line, and nothing stays open.
    assert suite.run("window.printed") == ["ceilings", "telemetry", "jobs", "system"]
    assert suite.run(closed) == before
    paper_px = 688  # A4 without its margins
    resized(suite, paper_px, 1000, "print")
    suite.run("document.querySelectorAll('details').forEach(e => { e.open = true })")
    cut = suite.run(TOO_WIDE)
    answer_px = suite.run("document.querySelector('#answer').getBoundingClientRect().bottom")
    suite.run("document.querySelectorAll('.parts details').forEach(e => { e.open = false })")
    resized(suite, 1280, 800)
    assert cut == []
    assert answer_px < 1010  # the height of A4 without its margins


def test_a_phone_scrolls_down_only_and_its_charts_are_not_shrunk(
    browser: Browser, page: Path
) -> None:
    tab = browser.open(page, width=390, height=844, dark=True)
    tab.run("window.chartsDrawn")
    width, room = tab.run("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= room == 390
    shrunk = tab.run(
        "[...document.querySelectorAll('.chart svg')].map(e =>"
        " e.getBoundingClientRect().width / e.getAttribute('width'))"
    )
    assert len(shrunk) > 10 and min(shrunk) > 0.95
    tab.run("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert tab.run(TOO_WIDE) == []
    assert is_quiet(tab)


def test_a_script_that_is_smuggled_in_does_not_run(browser: Browser, page: Path) -> None:
    policy = page.read_text().split('http-equiv="Content-Security-Policy" content="')[1]
    scripts = policy.split('"')[0].split("script-src ")[1].split(";")[0]
    assert all(each.startswith("'sha256-") for each in scripts.split())
    harmed = page.with_name("harmed.html")
    text = page.read_text()
    harmed.write_text(text.replace("<main>", f"<main><script>window.harmed=1</script>{HOSTILE}"))
    tab = browser.open(harmed)
    tab.run("window.chartsDrawn")
    assert tab.run("window.harmed") is None
    assert "Content Security Policy" in " ".join(tab.errors)
