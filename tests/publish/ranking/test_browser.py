"""The ranking as a person uses it: in a real browser, from files, without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.ranking_runs import REAL, REAL_EPOCHS, Submitted, submit
from vflops import units
from vflops.publish.ranking import ranking_pages
from vflops.publish.ranking.static_site import build

HOSTILE = "<img src=x onerror='window.harmed=1'></script><script>window.harmed=1</script>"
RUNS = {
    "ant": Submitted(quality=0.95, device="Alpha", ranks=16, created_utc="2024-05-01T00:00:00Z"),
    "bee@centre": Submitted(
        quality=0.77, device="Beta", ranks=2, created_utc="2025-05-01T00:00:00Z"
    ),
    "cat": Submitted(quality=0.76, device="Beta", ranks=4, created_utc="2023-05-01T00:00:00Z"),
    "dog": Submitted(quality=0.7, device=HOSTILE, cpu="a\u202eb", power=False),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ranking")
    for number, (name, wanted) in enumerate(RUNS.items()):
        submit(place / "in" / name, replace(wanted, id=f"20260101T000000Z-{name}-00000{number}"))
    real = Submitted(
        id="20260101T000000Z-real-000009", facts=REAL, epochs=REAL_EPOCHS, quality=0.77
    )
    submit(place / "in" / "eel", real)
    edited = submit(place / "in" / "fox", replace(real, id="20260101T000000Z-fox-00000a"))
    edited.score_file.write_text("{}")
    return build([place / "in"], place / "site").index


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module")
def opened(browser: Browser, page: Path) -> Tab:
    return browser.open(page)


@pytest.fixture
def tab(opened: Tab, page: Path) -> Iterator[Tab]:
    """The list of synthetic data, which has four results; at the end the page was quiet."""
    opened.go(f"{page.as_uri()}#data=synthetic")
    yield opened
    assert opened.errors == []
    assert opened.requests == []
    assert opened.run("window.harmed") is None


def sources(tab: Tab) -> list[str]:
    return tab.texts("#table tbody td:nth-child(2)")


def test_the_best_is_first_and_every_column_sorts_both_ways(tab: Tab) -> None:
    assert sources(tab) == ["ant", "bee@centre", "cat", "dog"]
    assert tab.texts("#table td.rank") == ["1", "2", "3", "4"]
    for key, order in {
        "source": ["ant", "bee@centre", "cat", "dog"],
        "score": ["ant", "bee@centre", "cat", "dog"],
        "quality": ["ant", "bee@centre", "cat", "dog"],
        "ranks": ["ant", "cat", "bee@centre", "dog"],
        "day": ["dog", "bee@centre", "ant", "cat"],
    }.items():
        tab.click(f'[data-sort="{key}"]')
        assert sources(tab) == order, key
        head = f"document.querySelector('[data-sort={key}]').parentElement.ariaSort"
        assert tab.run(head) in ("ascending", "descending")
        ahead = sources(tab)
        tab.click(f'[data-sort="{key}"]')
        if key != "ranks":  # two have the same number: they keep their order
            assert sources(tab) == ahead[::-1], key


def test_what_is_not_known_comes_last_either_way(tab: Tab) -> None:
    for _ in range(2):
        tab.click('[data-sort="per_watt"]')
        assert sources(tab)[-1] == "dog"


def test_a_regulated_score_that_is_missing_is_not_defined(tab: Tab) -> None:
    script = Path(ranking_pages.__file__).with_name("templates") / "columns.js"
    text = script.read_text(encoding="utf-8")  # the page runs it in a function of its own
    found = "[value('regulated', 0), COLUMNS.find(({ key }) => key === 'regulated').show(0, 'OPS')]"
    shown = tab.run(f"(() => {{ {text}\nreturn {found}; }})()")
    assert shown == [None, "not defined for an error of 0"]


def test_vflops_as_published_are_a_column_beside_the_ranked_ones(tab: Tab) -> None:
    capped, published = (
        tab.texts(f'#table tbody tr:first-child td[data-label="{label}"]')[0].split()
        for label in ("VFLOPS", "as published")
    )
    assert float(published[0]) == pytest.approx(float(capped[0]) * (0.95 / 0.78) ** 5, rel=0.01)
    tab.enter("[data-facet=data]", "real")
    assert "as published" in tab.texts("#table thead th")


def test_numbers_have_the_unit_of_what_is_shown(tab: Tab) -> None:
    """The script formats as ``vflops.units`` does."""
    script = Path(ranking_pages.__file__).with_name("templates") / "columns.js"
    text = script.read_text(encoding="utf-8")
    watts = [999.4, 999.6, 999_499.0, 999_500.0, 999_999.0, 1e6, 12.34, 9.999, 0.25, 0.0]
    times_s = [0.0123, 0.9994, 0.9996, 1.0, 59.94, 59.96, 60.0, 125.4]
    found = f"[{watts}.map(n => quantity(n, 'W')), {times_s}.map(duration)]"
    shown = tab.run(f"(() => {{ {text}\nreturn {found}; }})()")
    assert shown == [[units.quantity(n, "W") for n in watts], list(map(units.seconds, times_s))]
    assert shown[0][4] == "1.00 MW" and shown[1][2] == "1 s"


def test_search_and_filters_leave_the_rank_as_it_is(tab: Tab) -> None:
    tab.enter("#search", "BETA cat")
    assert sources(tab) == ["cat"]
    assert tab.texts("#table td.rank") == ["3"]
    assert tab.texts("#count") == ["1 of 4 results in this list"]
    tab.enter("#search", "")
    tab.enter("#device", "Beta")
    assert sources(tab) == ["bee@centre", "cat"]


def test_the_address_holds_the_state_and_opens_it_again(tab: Tab, browser: Browser) -> None:
    tab.enter("#device", "Beta")
    tab.click('[data-sort="day"]')
    tab.click('[data-sort="day"]')
    assert sources(tab) == ["cat", "bee@centre"]
    address = tab.run("document.getElementById('link').href")
    assert address == tab.run("location.href")
    again = browser.open(address)
    assert sources(again) == ["cat", "bee@centre"]
    assert again.run("document.getElementById('device').value") == "Beta"
    again.go(re.sub("#.*", "#q=ant&data=synthetic", address))
    assert sources(again) == ["ant"]
    assert not again.errors


@pytest.mark.parametrize("hash", ["q=%E0%A4%A", "page=-1e9&sort=nothing", "__proto__=x&list=9"])
def test_a_broken_address_shows_the_list(tab: Tab, page: Path, hash: str) -> None:
    tab.go("about:blank")
    tab.go(f"{page.as_uri()}#{hash}")
    assert tab.texts("#count")[0].endswith("in this list")


def test_the_lists_are_apart(tab: Tab) -> None:
    assert "real" in tab.texts("[data-facet=data]")[0]
    tab.enter("[data-facet=data]", "real")
    assert sources(tab) == ["eel"]
    assert tab.texts("#table td.rank") == ["1"]
    assert "data=real" in tab.run("location.hash")


def test_what_does_not_rank_is_listed_with_its_reason(tab: Tab) -> None:
    tab.click("#tab-apart")
    (row,) = tab.texts("#apart-table tbody tr")
    assert "fox" in row
    assert "score.json" in row
    assert tab.run("document.getElementById('ranked').hidden") is True
    tab.click("#tab-published")
    assert "Fujitsu" in tab.texts("#published tbody tr")[0]


def test_the_energy_lists_have_ranks_of_their_own(tab: Tab) -> None:
    tab.click("#tab-energy")
    assert sources(tab) == ["ant", "bee@centre", "cat"]
    assert tab.texts("#table td.rank") == ["1", "2", "3"]
    assert tab.texts("#facets label")[-1].endswith("accelerators only")
    assert "VFLOPS/W" in tab.texts("#table td.score")[0]
    assert tab.run("document.querySelector('#over-time .unit').textContent") == "VFLOPS/W"
    (row,) = tab.texts("#without-table tbody tr")
    assert "dog" in row
    assert "its power was not measured: accelerators: " in row
    tab.click('[data-sort="rank"]')
    assert "sort=rank" in tab.run("location.hash")
    tab.click("#tab-ranked")
    assert len(sources(tab)) == 4
    assert tab.run("document.getElementById('without').hidden") is True


def test_a_name_with_a_script_is_text(tab: Tab, browser: Browser) -> None:
    (system,) = [text for text in tab.texts("#table td.name") if "<img" in text]
    assert "onerror" in system
    assert tab.run("document.images.length + document.scripts.length") == 2
    address = tab.run("document.querySelector('#table tr:last-child td.name a').href")
    opened = browser.open(address)
    assert "<img" in opened.texts("h1")[0]
    assert "a\ufffdb" in opened.texts("dl")[0]
    assert opened.run("document.images.length + document.scripts.length") == 0
    assert not opened.errors
    back = opened.run("document.querySelector('td.name a').href")
    opened.go(back)
    assert sources(opened) == ["ant", "bee@centre", "cat", "dog"]


def test_the_policy_stops_what_was_not_there(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    tab.run("document.body.insertAdjacentHTML('beforeend', `<b onclick='harmed=1'>x</b>`)")
    tab.run("document.body.lastChild.click()")
    tab.run("new Promise(done => setTimeout(done, 50))")
    assert tab.run("window.harmed") is None
    assert any("Content Security Policy" in error for error in tab.errors)
    policy = tab.run("document.querySelector('meta[http-equiv]').content")
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_the_pictures_show_every_result_of_the_list(tab: Tab) -> None:
    dots = "[...document.querySelectorAll('#{} .dots')].map(e => e.getAttribute('d')).join('')"
    for picture in ("over-time", "over-ranks"):
        assert tab.run(dots.format(picture)).count("M") == 4
    tab.enter("#device", "Beta")
    assert tab.run(dots.format("over-time")).count("M") == 2
    assert len(tab.texts("#legend span")) == 3


@pytest.mark.parametrize(("data", "days"), [("synthetic", 4), ("real", 3)])
def test_no_day_stands_twice_below_the_picture(tab: Tab, data: str, days: int) -> None:
    tab.enter("[data-facet=data]", data)  # the other has one result: the day before, its own, next
    words = tab.run("[...document.querySelectorAll('#over-time text')].map(e => e.textContent)")
    shown = [text for text in words if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text)]
    assert shown == sorted(set(shown))
    assert len(shown) == days


@pytest.mark.parametrize("data", ["synthetic", "real"])
def test_the_picture_has_a_unit_and_more_than_one_mark_of_it(tab: Tab, data: str) -> None:
    tab.enter("[data-facet=data]", data)
    assert tab.run("document.querySelector('#over-ranks .unit').textContent") == "VFLOPS"
    marks = "document.querySelectorAll('#over-time text[text-anchor=end][x=\"56\"]').length"
    assert tab.run(marks) >= 2


def test_a_system_has_the_same_figures_on_its_page_as_in_the_list(
    tab: Tab, browser: Browser
) -> None:
    row = "#table tbody tr:nth-child(2)"
    opened = browser.open(tab.run(f"document.querySelector('{row} td.name a').href"))
    for label in (
        "VFLOPS",
        "as published",
        "quality",
        "time",
        "accelerators",
        "efficiency",
        "validity",
    ):
        cell = f'td[data-label="{label}"]'
        assert opened.texts(cell) == tab.texts(f"{row} {cell}"), label
    assert not opened.errors


def test_the_words_of_the_lists_are_explained(tab: Tab) -> None:
    told = tab.run("[...document.querySelectorAll('#words dt')].map(e => e.textContent)")
    searches = ["regulated score", "power"]
    assert told == [
        "size",
        "n = 5",
        "as published",
        "length",
        "level",
        "problem",
        *searches,
        "audited by",
        "efficiency",
    ]


def test_a_name_is_not_broken_where_there_is_room(browser: Browser, page: Path) -> None:
    tab = browser.open(f"{page.as_uri()}#data=synthetic", width=1280, height=800)
    lines = (
        "[...document.querySelectorAll('#table td.source bdi')].map(e => e.getClientRects().length)"
    )
    assert tab.run(lines) == [1, 1, 1, 1]


def test_it_prints_all_rows_in_light_colours(browser: Browser, page: Path) -> None:
    tab = browser.open(f"{page.as_uri()}#data=synthetic", dark=True)
    screen = tab.run("getComputedStyle(document.body).backgroundColor")
    assert screen != "rgb(255, 255, 255)"
    printed = tab.pdf()
    assert printed.startswith(b"%PDF")
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=1030,  # A4, lying, with its margins
        height=700,
        deviceScaleFactor=1,
        mobile=False,
    )
    assert tab.run("document.documentElement.scrollWidth") <= 1030
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert not tab.errors


def test_a_phone_shows_each_result_without_scrolling_sideways(browser: Browser, page: Path) -> None:
    tab = browser.open(f"{page.as_uri()}#data=synthetic", width=390, height=800)
    assert tab.run("document.documentElement.scrollWidth") <= 390
    assert tab.run("document.querySelector('.card').scrollWidth") <= 390
    assert len(sources(tab)) == 4
    edges = "[...document.querySelectorAll('#table tr:first-child td bdi')]"
    edges += ".map(e => Math.round(e.getBoundingClientRect().right))"
    assert len(set(tab.run(edges)[4:])) == 1, "figures and words end at one edge"
    tab.click("#tab-published")
    (first, *_) = tab.texts("#published td.score")
    assert first == "31.41 VPFLOPS, published"
