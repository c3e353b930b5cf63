"""The first screen of a report: the badge, the limit, the next command, and the folded rest."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.search_runs import HandmadeSearch, one_worker
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.publish.pages.roofline_points import Achieved
from vflops.publish.report.answer import Answer, answer
from vflops.publish.report.limits import training_limit
from vflops.publish.report.report_page import write_report
from vflops.publish.report.results import results
from vflops.publish.report.small_roofline import draw_small_roofline
from vflops.publish.report.training_blocks import RooflineModel, roofline_models
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import ADVICE
from vflops.results.check.checking import check
from vflops.results.check.findings import Finding, Findings
from vflops.results.check.rule_sets import RULE_SETS
from vflops.results.roofline.analysis import Ceilings, measured_ceilings
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score, with_trained_bounds

BUSY = "other programs used 63 % of the CPUs while ceilings were measured"
MACHINE = Ceilings(
    compute={("gemm", "fp32"): 2e11, ("convolution", "fp32"): 1e11},
    memory=2e10,
    network=None,
    ranks=None,
)
POINT = Achieved("net", 5.0, 2e9, 5e10)


def answered(folder: RunFolder, *findings: Finding, **changes: Any) -> Answer:
    """The first screen of a run with other findings, and a score with these changes."""
    contents = Contents(RunFolder.open(folder.path))
    found = score(contents).model_copy(update={"complete": True, **changes})
    known: dict[object, Any] = {
        score: found,
        check: Findings(run="x", rule_set="practice", rule_set_version=1, findings=findings),
    }
    once = contents.once
    contents.once = lambda function: known[function] if function in known else once(function)  # type: ignore[method-assign,assignment]
    machine = measured_ceilings(contents.measurements)
    return answer(contents, machine, roofline_models(contents, found))


def finding(rule: str, verdict: str, evidence: str = BUSY) -> Finding:
    return Finding.model_validate(
        {"rule": rule, "title": "its title", "verdict": verdict, "evidence": evidence}
    )


def opened(folder: RunFolder) -> dict[str, Any]:
    """Changes that make the task of a run an open one."""
    found = score(Contents(RunFolder.open(folder.path)))
    task = {"kind": "open", "differences": ("target 0.8 instead of 0.5",)}
    return {
        name: tuple(each.model_copy(update={"task": "open"}) for each in getattr(found, name))
        for name in ("trainings", "repeats")
    } | {"tasks": tuple(each.model_copy(update=task) for each in found.tasks)}


def page_of(folder: RunFolder) -> str:
    write_report(Contents(RunFolder.open(folder.path)))
    return folder.report_file.read_text().split("</style>")[1]


class TestBadge:
    """Whether a result counts, and why not."""

    def test_a_rule_that_is_not_met_says_what_went_wrong_and_what_to_do(
        self, trained_folder: RunFolder
    ) -> None:
        findings = (finding("score", "cannot tell"), finding("quiet", "fail"))
        badge = answered(trained_folder, *findings).badge
        assert (badge.kind, badge.label) == ("not-valid", "Not valid")
        first, second = badge.reasons
        assert (first.text, first.advice) == (BUSY, ADVICE["quiet"])
        assert second.text == f"it cannot be told whether its title: {BUSY}"

    def test_few_of_many_failures_are_explained_and_long_ones_are_cut(
        self, trained_folder: RunFolder
    ) -> None:
        failures = [finding("quiet", "fail", "x" * 1000) for _ in range(7)]
        badge = answered(trained_folder, *failures).badge
        assert (len(badge.reasons), badge.more) == (2, 5)
        assert len(badge.reasons[0].text) <= 220 and badge.reasons[0].text.endswith("…")

    def test_a_closed_task_that_meets_all_rules_is_valid(self, trained_folder: RunFolder) -> None:
        passed = finding("quiet", "pass")
        shown = answered(trained_folder, passed)
        assert (shown.badge.kind, shown.badge.label) == ("valid", "Valid")
        assert shown.badge.reasons[0].text == "all 1 rules of practice that apply are met"
        assert shown.next.command.startswith("vflops archive runs/")

    def test_an_open_task_is_open_even_if_all_rules_are_met(
        self, trained_folder: RunFolder
    ) -> None:
        passed = finding("quiet", "pass")
        badge = answered(trained_folder, passed, **opened(trained_folder)).badge
        assert (badge.kind, badge.label) == ("open", "Open")
        assert "target 0.8 instead of 0.5" in badge.reasons[1].text

    def test_a_missed_target_is_said(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.4))
        folder = handmade_run.folder
        badge = answered(folder, finding("quiet", "pass")).badge
        assert (badge.kind, badge.label) == ("missed", "Target missed")
        assert badge.reasons[0].text == "by image-classification"
        style = files("vflops.publish.pages").joinpath("templates/page.css").read_text()
        (rule,) = re.findall(r"\.verdict\.missed[^{]*\{([^}]*)\}", style)
        assert "--tone: var(--warn)" in rule

    @pytest.mark.parametrize("task", ["closed", "open"])
    def test_a_search_that_breaks_aiperfs_rules_is_neither_valid_nor_open(
        self,
        task: str,
        trained_folder: RunFolder,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        made = HandmadeSearch(tmp_path / "searches", monkeypatch)
        made.worker(0, one_worker(made))
        searches = score(Contents(made.folder)).searches
        changes = opened(trained_folder) if task == "open" else {}
        passed = finding("quiet", "pass")
        badge = answered(trained_folder, passed, **changes, searches=searches).badge
        assert (badge.kind, badge.label) == ("not-valid", "Not valid by AIPerf's rules")
        assert badge.reasons[0].text.startswith(searches[0].aiperf.reasons[0])
        assert badge.reasons[1].text == "all 1 rules of practice that apply are met"

    def test_every_line_after_the_first_begins_like_a_sentence(
        self, handmade_run: HandmadeRun
    ) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.4))
        (verdict,) = re.findall(r'<div class="verdict.*?</div>', page_of(handmade_run.folder), re.S)
        first, *others = re.findall(r"<li>([\w ]+)", verdict)
        assert first[0].islower()  # it follows the colon of the badge
        assert others and all(text[0].isupper() for text in others), others

    def test_a_run_that_stopped_is_not_finished(self, trained_folder: RunFolder) -> None:
        reason = {"complete": False, "incomplete_reason": "it was stopped"}
        shown = answered(trained_folder, finding("quiet", "fail"), **reason)
        assert (shown.badge.kind, shown.badge.label) == ("unfinished", "Not finished")
        assert shown.badge.reasons[0].text == "it was stopped"
        assert shown.next.command.startswith("vflops resume runs/")

    def test_every_rule_has_advice(self) -> None:
        ids = {rule.id for rules in RULE_SETS.values() for rule in rules.rules}
        assert ids - {"repeats"} == set(ADVICE), "repeats never fails"


class TestLimit:
    """The sentence on what limits a workload."""

    @pytest.fixture
    def found(self, trained_folder: RunFolder) -> Score:
        return score(Contents(trained_folder))

    @pytest.fixture
    def model(self, trained_folder: RunFolder, found: Score) -> RooflineModel:
        (model,) = roofline_models(Contents(trained_folder), found)
        return model

    @pytest.mark.parametrize(
        ("share", "start"),
        [
            (
                0.0001,
                "Overhead: it runs at 0.010 % of the 37.8 GFLOPS that arithmetic and memory allow",
            ),
            (
                0.25,
                "Overhead: it runs at 25.0 % of the 37.8 GFLOPS that arithmetic and memory allow",
            ),
            (0.8, "Memory bandwidth: it runs at 80.0 % of the 37.8 GFLOPS that the ceilings allow"),
            (1.2, "Memory bandwidth: it runs at 120.0 % of the 37.8 GFLOPS that unfused operators"),
        ],
    )
    def test_the_share_of_the_roofline_decides(
        self, found: Score, model: RooflineModel, share: float, start: str
    ) -> None:
        assert model.achieved is not None and model.bound.bound_by == "memory"
        reached = replace(model.achieved, flops=share * model.achieved.most)
        sentence = training_limit(found.trainings[0], replace(model, achieved=reached))
        assert sentence.startswith(start) and sentence.endswith(".")

    def test_waiting_for_data_comes_before_the_roofline(
        self, found: Score, model: RooflineModel
    ) -> None:
        training = found.trainings[0]
        phases = {**training.phases, "data": 0.4 * training.work_s}
        slow = training.model_copy(update={"phases": phases})
        assert training_limit(slow, model).startswith("Reading data: training waits for it 40 %")

    def test_a_long_start_is_named(self, found: Score, model: RooflineModel) -> None:
        training = found.trainings[0]
        phases = {**training.phases, "start-up": 0.75 * training.wall_s}
        late = training.model_copy(update={"phases": phases})
        assert "; start-up takes 75 % of the" in training_limit(late, model)

    def test_without_ceilings_the_limit_is_not_known(self, found: Score) -> None:
        sentence = training_limit(found.trainings[0], None, "the memory was not measured")
        assert sentence == "Not known: the memory was not measured."

    def test_the_cause_of_an_unknown_limit_is_named(self, found: Score) -> None:
        script = found.trainings[0].model_copy(update={"precision": None})
        for changes, cause in (
            ({"ceilings": ()}, "no ceilings were measured"),
            ({"models": ()}, "the operations are declared, and a roofline needs a recorded graph"),
            ({"trainings": (script,)}, "the script does not state its precision: set precision"),
        ):
            (result, *_) = results(found.model_copy(update={"repeats": (), **changes}))
            assert str(result.limit).startswith(f"Not known: {cause}")

    def test_the_score_shows_the_bound_in_the_precision_of_training(
        self, trained_folder: RunFolder, found: Score
    ) -> None:
        contents = Contents(trained_folder)
        (graph,) = [model for model in found.models if model.model == found.trainings[0].workload]
        assert graph.bound is not None
        other = graph.bound.model_copy(update={"precision": "bf16", "samples_per_s": 1.0})
        changed = found.model_copy(update={"models": (graph.model_copy(update={"bound": other}),)})
        (shown,) = with_trained_bounds(changed, contents).models
        assert shown.bound == graph.bound and shown.bound.precision == "fp32"


class TestSmallRoofline:
    """The drawing beside the limit."""

    def test_the_star_is_below_its_ring_and_the_ring_below_the_roof(self) -> None:
        drawing = draw_small_roofline(MACHINE, [("1", "fp32", POINT)])
        assert drawing is not None
        svg = ElementTree.fromstring(drawing)
        marks = {each.get("class"): each for each in svg}
        star = re.findall(r"[\d.]+", str(marks["star"].get("transform")))
        roof = re.findall(r"[\d.]+", str(marks["roof"].get("d")))
        ring = float(str(marks["most"].get("cy")))
        assert float(star[1]) > ring > float(roof[1])
        assert float(star[0]) == float(str(marks["most"].get("cx")))
        assert marks["mark-of"].text == "1"
        title = svg.find("{http://www.w3.org/2000/svg}title")
        assert title is not None and title.text is not None
        assert "net achieved 2.00 GFLOPS, 4.0 % of the 50.0 GFLOPS" in title.text

    def test_names_are_escaped(self) -> None:
        drawing = draw_small_roofline(MACHINE, [("<1>", "fp32", replace(POINT, name="<b>"))])
        assert drawing is not None and "<b>" not in drawing and "<1>" not in drawing

    def test_nothing_is_drawn_without_ceilings_or_points(self) -> None:
        assert draw_small_roofline(replace(MACHINE, memory=None), [("", "fp32", POINT)]) is None
        assert draw_small_roofline(MACHINE, [("", "bf16", POINT)]) is None
        assert draw_small_roofline(MACHINE, []) is None


class TestPage:
    """Where things are on the page."""

    def test_the_answer_is_above_everything_that_is_folded(self, trained_folder: RunFolder) -> None:
        page = page_of(trained_folder)
        top, folds = page[: page.index("<details")], page[page.index("<details") :]
        for part in ('id="answer"', 'class="badge"', 'class="small-roofline"', 'class="command"'):
            assert part in top, part
        for label in ("speed", "quality", "time to quality", "energy"):
            assert f'data-label="{label}"' in top, label
        assert "What limits it" in top and "MFLOPS" in top and "23.8 kJ" in top
        assert 'class="chart"' not in top
        sections = re.findall(r'<details class="part".*?<section id="([\w-]+)"', folds, re.S)
        assert sections == [
            "training-0", "bounds", "rules", "ceilings", "telemetry", "jobs", "system", "reproduce",
        ]  # fmt: skip
        for link in re.findall(r'<a href="#([^"]+)"', page):
            assert f'id="{link}"' in page, link

    def test_no_figure_of_the_page_is_lost_in_the_folds(self, trained_folder: RunFolder) -> None:
        page = page_of(trained_folder)
        places = [
            page.index(f'id="{mark}"')
            for mark in ("training-0-quality", "training-0-budget", "training-0-loss", "roofline")
        ]
        assert places == sorted(places)
        for mark in ("training-0-power", "training-0-kernels", "search", "messages"):
            assert f'id="{mark}"' in page, mark
        assert "Rule set practice/" in page
        assert "vflops</span> <span>reproduce</span>" in page

    def test_sections_have_the_order_of_the_results(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job(1, workload="missed"), job(2, workload="reached"))
        handmade_run.attempt(1, 0.0, *course(0.4))
        handmade_run.attempt(2, 500.0, *course(0.9))
        page = page_of(handmade_run.folder)
        rows = re.findall(r'<th scope="row">.*?</span> ([\w-]+)', page)
        assert rows == ["reached", "missed"]
        assert re.findall(r"<h2>Training: ([\w-]+)</h2>", page) == rows
