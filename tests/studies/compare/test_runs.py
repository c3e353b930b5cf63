"""Runs side by side: what is a difference, what cannot be told, and what does not compare."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.dated_runs import DATA, SAMPLES, WORK_S, Dated, dated_run
from vflops.cli.results import compare as compare_command
from vflops.cli.terminal.console import console
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.batch_ops import BatchOps
from vflops.results.figures import format_value
from vflops.studies.compare import compare_page, compare_text
from vflops.studies.compare.comparing import compare, read_sides
from vflops.studies.compare.comparison import ComparedFigure, Comparison
from vflops.studies.compare.run_view import RunView

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]
FAST, SLOW = (1.0, 1.01, 0.99), (1.06, 1.05, 1.07)
IC = "image-classification"
_OTHER_WORK = "the operations per sample differ"


def compared(*words: RunFolder | str) -> Comparison:
    return compare(read_sides([str(w.path) if isinstance(w, RunFolder) else w for w in words]))


def figure(found: Comparison, name: str, side: str = "B") -> ComparedFigure:
    (one,) = [each for each in found.figures if (each.name, each.side) == (name, side)]
    return one


def test_repeats_within_runs_tell_a_slower_side_from_chance(tmp_path: Path) -> None:
    a = dated_run(tmp_path, Dated(0, FAST, quality=(0.88, 0.885, 0.875)))
    b = dated_run(tmp_path, Dated(1, SLOW, quality=(0.879, 0.886, 0.874)))
    found = compared(a, b)
    speed = figure(found, "throughput")
    rates = [[SAMPLES / (WORK_S * slower) for slower in side] for side in (FAST, SLOW)]
    assert (speed.base, speed.value) == pytest.approx(tuple(map(fmean, rates)))
    assert speed.repeats == (3, 3)
    assert speed.difference == pytest.approx(fmean(rates[1]) / fmean(rates[0]) - 1)
    assert speed.low is not None and speed.high is not None and speed.difference is not None
    assert speed.low < speed.difference < speed.high < 0
    assert speed.verdict == "worse"
    assert figure(found, "time to quality").verdict == "worse"  # longer
    assert figure(found, "top-1 accuracy").verdict == "not significant"
    assert found.warnings == ()


def test_a_difference_without_repeats_stands_alone(tmp_path: Path) -> None:
    a, b = (dated_run(tmp_path, Dated(day, (slower,))) for day, slower in enumerate((1.0, 1.25)))
    speed = figure(compared(a, b), "FLOPS")
    assert speed.difference == pytest.approx(-0.2)
    assert (speed.verdict, speed.reason) == ("cannot tell", "1 repeat, 3 are needed")
    assert (speed.low, speed.high, speed.p) == (None, None, None)


def test_runs_of_one_side_are_repeats_one_a_run(tmp_path: Path) -> None:
    a = [dated_run(tmp_path, Dated(day, (s, s + 0.2))) for day, s in enumerate(FAST)]
    b = [dated_run(tmp_path, Dated(day, (s, s + 0.2), name="b")) for day, s in enumerate(SLOW)]
    found = compared(*a, "vs", *b)
    speed = figure(found, "FLOPS")
    assert speed.repeats == (3, 3)  # trainings within a run share its circumstances
    assert speed.verdict == "worse"
    score = figure(found, "open VFLOPS")  # all runs have the seeds 1 and 2
    assert (score.verdict, score.reason) == ("cannot tell", "2 seeds, 3 are needed")


def test_ceilings_have_one_repeat_a_run(tmp_path: Path) -> None:
    a = [dated_run(tmp_path, Dated(d, memory=v)) for d, v in enumerate((2.0e10, 2.01e10, 1.99e10))]
    b = [
        dated_run(tmp_path, Dated(d, memory=v, name="b"))
        for d, v in enumerate((2.2e10, 2.21e10, 2.19e10))
    ]
    alone = figure(compared(a[0], b[0]), "copy")
    assert (alone.verdict, alone.reason) == ("cannot tell", "1 repeat, 3 are needed")
    together = figure(compared(*a, "vs", *b), "copy")
    assert together.verdict == "better"
    assert together.difference == pytest.approx(0.1)


def test_repeats_without_any_spread_cannot_tell(tmp_path: Path) -> None:
    a, b = (dated_run(tmp_path, Dated(day, (s, s, s))) for day, s in enumerate((1.0, 1.1)))
    found = compared(a, b)
    assert figure(found, "FLOPS").reason == "all repeats of a side are exactly equal"
    assert figure(found, "top-1 accuracy").verdict == "equal"


def test_what_differs_is_named_by_layer_setting_and_version(tmp_path: Path) -> None:
    other = tiny().model_copy(update={"repeat": 2})
    a = dated_run(tmp_path, Dated(0))
    b = dated_run(tmp_path, Dated(1, settings=other, torch="2.14.0", clock=3000))
    found = compared(a, b)
    assert [(d.layer, d.name, d.values) for d in found.system] == [
        ("framework", "torch", ("2.13.0", "2.14.0"))  # a clock of the moment is no difference
    ]
    assert [(d.name, d.values) for d in found.settings] == [("repeat", ("1", "2"))]
    assert found.versions == ()
    assert "hardware" in found.equal_layers and "framework" not in found.equal_layers


def test_runs_of_other_things_are_compared_with_a_warning(tmp_path: Path) -> None:
    data = DATA.model_copy(update={"fingerprint": "1" * 64})
    goal = {"quality": "top-1 accuracy", "better": "higher", "target": 0.7, "exponent": 5}
    a = dated_run(tmp_path, Dated(0))
    b = dated_run(tmp_path, Dated(1, job={"data": data, "goal": goal}))
    found = compared(a, b)
    text = "\n".join(found.warnings)
    assert f"{IC}: the data differs, by fingerprint: A 000000000000, B 111111111111" in text
    assert "the goals differ, so VFLOPS and time to quality are not comparable" in text
    assert "trained longer" not in text
    assert figure(found, "FLOPS").difference == pytest.approx(0.0)


def test_what_depends_on_the_goal_is_not_compared_across_goals(tmp_path: Path) -> None:
    goal = {"quality": "top-1 accuracy", "better": "higher", "target": 0.001, "exponent": 5}
    quality = (0.88, 0.885, 0.875)
    a = dated_run(tmp_path, Dated(0, FAST, quality=quality))
    b = dated_run(tmp_path, Dated(1, SLOW, quality=quality, job={"goal": goal}))
    found = compared(a, b)
    for name in ("time to quality", "open VFLOPS"):
        one = figure(found, name)
        assert one.base is not None and one.value is not None
        assert (one.difference, one.low, one.p) == (None, None, None)
        assert (one.verdict, one.reason) == ("cannot tell", "the goals differ")
    assert figure(found, "throughput").verdict == "worse"
    assert "time to quality" not in compare_text.sentence(found, found.sides[1])


@pytest.mark.parametrize(
    ("counted", "values", "reason"),
    [
        ("work", [BatchOps(batch=32, forward=n, total=3 * n) for n in (99, 100)], _OTHER_WORK),
        ("rules", ["hpcai500/1", "aiperf/1"], "operations are counted by different rules"),
    ],
)
def test_operations_of_other_networks_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: str, values: list[object], reason: str
) -> None:
    a, b = (dated_run(tmp_path, Dated(day, FAST)) for day in (0, 1))
    by_run = dict(zip((a.record.id, b.record.id), values, strict=True))
    monkeypatch.setattr(RunView, counted, property(lambda run: {IC: by_run[run.id]}))
    found = compared(a, b)
    for name in ("FLOPS", "open VFLOPS"):
        one = figure(found, name)
        assert one.base is not None and one.value is not None
        assert (one.difference, one.low, one.verdict) == (None, None, "cannot tell")
        assert (compare_text.verdict(one), one.reason) == ("not comparable", reason)
    assert figure(found, "throughput").difference == pytest.approx(0.0)
    warning = f"{IC}: {reason}, so FLOPS and VFLOPS are not comparable"
    assert any(line.startswith(warning) for line in found.warnings)


def test_operations_once_per_batch_are_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same network is captured with the batch of a rank, here of 2 and of 8 ranks."""
    a, b = (dated_run(tmp_path, Dated(day, FAST)) for day in (0, 1))
    by_run = {
        run.record.id: BatchOps(batch=batch, forward=1, total=2_164_994 * batch + 63)
        for run, batch in ((a, 64), (b, 16))
    }
    monkeypatch.setattr(RunView, "work", property(lambda run: {IC: by_run[run.id]}))
    found = compared(a, b)
    assert figure(found, "FLOPS").difference == pytest.approx(0.0)
    assert not any(_OTHER_WORK in line for line in found.warnings)


def test_a_quality_from_the_loss_is_not_compared_across_texts(tmp_path: Path) -> None:
    goal = {"quality": "next-token probability", "better": "higher", "target": 0.8, "exponent": 5}
    for of_loss, is_compared in ((None, True), ("exp(-loss)", False)):
        a, b = (
            dated_run(
                tmp_path / f"{of_loss}",
                Dated(
                    day,
                    quality=quality,
                    job={
                        "data": DATA.model_copy(update={"contents": {"validation": text}}),
                        "goal": {**goal, "of_loss": of_loss},
                    },
                ),
            )
            for day, (text, quality) in enumerate((("1" * 64, 0.88), ("2" * 64, 0.82)))
        )
        found = compared(a, b)
        for name in ("next-token probability", "time to quality"):
            one = figure(found, name)
            assert one.base is not None and one.value is not None
            assert (one.difference is not None) is is_compared
            if not is_compared:
                assert compare_text.verdict(one) == "not comparable"
                assert one.reason == "the validation data differs"
        assert figure(found, "FLOPS").difference is not None


def test_a_reason_for_many_figures_says_for_how_many_of_them(tmp_path: Path) -> None:
    a, b = (dated_run(tmp_path, Dated(day, (slower,))) for day, slower in ((0, 1.0), (1, 1.1)))
    found = compared(a, b)
    both = [one for one in found.figures if one.verdict != "absent"]
    untold = [one for one in both if one.verdict == "cannot tell"]
    assert 4 <= len(untold) < len(both)  # the accuracies are equal
    (line,) = compare_text.reasons(found.figures, "B")
    many = f"{len(untold)} of {len(both)} figures that both sides have"
    assert line == f"cannot tell: 1 repeat, 3 are needed ({many})"


def test_one_that_trained_longer_is_compared_with_a_warning(tmp_path: Path) -> None:
    told = [{"settings": {"train": {"epochs": epochs}}} for epochs in (3, 9)]
    found = compared(*(dated_run(tmp_path, Dated(day, job=job)) for day, job in enumerate(told)))
    assert any(
        "trained longer" in warning and "A 3 epochs, B 9 epochs" in warning
        for warning in found.warnings
    )


def test_a_run_that_is_unfinished_or_fails_its_rules_is_marked(tmp_path: Path) -> None:
    a = dated_run(tmp_path, Dated(0))
    b = dated_run(tmp_path, Dated(1, ends=False))
    found = compared(a, b)
    assert any(f"{b.record.id} is not complete" in warning for warning in found.warnings)
    assert "complete" in found.sides[1].failed[b.record.id]
    assert "complete" not in found.sides[0].failed.get(a.record.id, ())


def test_a_side_of_unlike_runs_is_warned_of(tmp_path: Path) -> None:
    a = [dated_run(tmp_path, Dated(day, cpu=f"CPU {day}")) for day in range(2)]
    b = dated_run(tmp_path, Dated(2))
    assert any("is not a repeat of" in each for each in compared(*a, "vs", b).warnings)
    like = [dated_run(tmp_path, Dated(day, seed=day, name="like")) for day in range(2)]
    assert not any("is not a repeat of" in each for each in compared(*like, "vs", b).warnings)


def test_more_than_two_sides_are_each_compared_with_the_first(tmp_path: Path) -> None:
    runs = [dated_run(tmp_path, Dated(d, (s,))) for d, s in enumerate((1.0, 0.5, 2.0))]
    found = compared(*runs)
    assert [figure(found, "FLOPS", side).difference for side in "BC"] == pytest.approx([1.0, -0.5])


@pytest.mark.parametrize("words", [["x"], ["x", "vs"], ["vs"]])
def test_one_side_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="two sides"):
        read_sides(words)


def test_the_page_lays_curves_over_each_other_and_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_page, "chart_library", str)  # it takes seconds to make
    a = dated_run(tmp_path, Dated(0, FAST))
    b = dated_run(tmp_path, Dated(1, SLOW, cpu="<script>alert(1)</script>"))
    given = read_sides([str(a.path), str(b.path)])
    quality, speed = compare_page.overlays(given)
    rows = quality.chart["data"]["values"]
    assert {row["side"] for row in rows} == {"A", "B"}
    assert len({row["line"] for row in rows}) == 6  # a line a training
    assert "samples/s" in speed.title
    compare_page.write_page(compare(given), given, tmp_path / "compare.html")
    text = (tmp_path / "compare.html").read_text()
    assert "yes, worse" in text and "FLOPS" in text
    assert "<script>alert" not in text


def test_the_command_shows_tables_writes_the_page_and_ends_well(
    tmp_path: Path, vflops: Vflops
) -> None:
    a, b = (dated_run(tmp_path, Dated(day, s)) for day, s in enumerate((FAST, SLOW)))
    done = vflops("compare", a.path, b.path)
    assert done.returncode == 0, done.stderr
    assert "B differs from A significantly" in done.stdout
    rows = {line.split("  ")[1]: line for line in done.stdout.splitlines() if line[:2] == "  "}
    assert rows["FLOPS"].rstrip().endswith("yes, worse")
    assert not list(tmp_path.glob("*.html"))  # nobody asked for a page
    assert "next: vflops compare" in done.stderr and "--page compare.html" in done.stderr
    asked = vflops("compare", a.path, b.path, "--json")
    assert json.loads(asked.stdout)["schema"] == "vflops.comparison/1"
    shutil.rmtree(b.path / "jobs")
    damaged = vflops("compare", a.path, b.path)
    assert damaged.returncode == 0 and "no job was started" in damaged.stdout
    assert vflops("compare", a.path, tmp_path / "none").returncode == 2


def test_what_is_no_run_is_skipped_with_a_note(tmp_path: Path, vflops: Vflops) -> None:
    """As in ``vflops compare runs/*``, after ``vflops history`` and ``vflops scale``."""
    a, b = (dated_run(tmp_path, Dated(day)) for day in range(2))
    page, experiment = tmp_path / "history.html", tmp_path / "scale-weak-x"
    page.write_text("<html>")
    experiment.mkdir()
    done = vflops("compare", a.path, page, experiment, b.path)
    assert done.returncode == 0, done.stderr
    assert f"skipped {page}: it is a file\n" in done.stderr
    assert f"skipped {experiment}: it has no run.json\n" in done.stderr
    assert "B compared with A" in done.stdout and "C compared" not in done.stdout
    alone = vflops("compare", a.path, page)
    assert alone.returncode == 2 and "is a file, not a run folder" in alone.stderr


def test_long_tables_are_cut_after_what_matters_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (dated_run(tmp_path, Dated(day, s)) for day, s in enumerate((FAST, SLOW)))
    found = compared(a, b)
    speed, quality = figure(found, "FLOPS"), figure(found, "top-1 accuracy")
    peaks = [
        quality.model_copy(update={"kind": "ceiling", "name": f"c{n}", "difference": n / 100})
        for n in range(20)
    ]
    long = found.model_copy(update={"figures": (*peaks, quality, speed)})
    kept = [each.name for each in compare_text.most_important(long.figures, 4)]
    assert kept == ["FLOPS", "top-1 accuracy", "c19", "c18"]
    monkeypatch.setattr(compare_command, "_MAX_FIGURES", 4)
    shown = []
    for every_line in (False, True):
        compare_command._show(long, console(), every_line=every_line)
        shown.append(capsys.readouterr().out)
    assert "… and 18 more: --all" in shown[0] and "c17" not in shown[0]
    assert "--all" not in shown[1] and "c0 " in shown[1]


def test_an_interval_is_of_the_ratio_and_never_below_nothing(tmp_path: Path) -> None:
    """By hand: logarithms of 1, 4, 16 spread by ln 4, so do those of the other side."""
    a = dated_run(tmp_path, Dated(0, (1.0, 4.0, 16.0)))
    b = dated_run(tmp_path, Dated(1, (2.0, 8.0, 32.0)))
    speed = figure(compared(a, b), "FLOPS")
    reach = 2.776445 * math.log(4) * math.sqrt(2 / 3)  # t of 4 degrees of freedom
    assert speed.low == pytest.approx(0.5 * math.exp(-reach) - 1, rel=1e-3)
    assert speed.high == pytest.approx(0.5 * math.exp(reach) - 1, rel=1e-3)
    noisy = dated_run(tmp_path, Dated(2, (1.0, 1.1, 1.2), quality=(0.0, 0.0, 0.9)))
    score = figure(compared(a, noisy), "open VFLOPS")
    assert score.low is not None and score.low >= -1


def test_a_run_beside_itself_or_its_copy_is_refused(tmp_path: Path) -> None:
    a, b = (dated_run(tmp_path, Dated(day)) for day in range(2))
    shutil.copytree(a.path, tmp_path / "copy")
    for given in ((a, a), (a, str(tmp_path / "copy")), (a, a, "vs", b)):
        with pytest.raises(UsageError, match=f"run {a.record.id} is given 2 times"):
            compared(*given)


def test_settings_hold_the_values_of_all_runs_of_a_side(tmp_path: Path) -> None:
    seeds = [tiny().model_copy(update={"seed": seed}) for seed in range(4)]
    runs = [dated_run(tmp_path, Dated(seed, settings=s)) for seed, s in enumerate(seeds)]
    found = compared(*runs[:2], "vs", *runs[2:])
    assert [(d.name, d.values) for d in found.settings] == [("seed", ("0, 1", "2, 3"))]


def test_another_workload_is_a_row_and_not_one_a_setting(tmp_path: Path) -> None:
    a, b = (dated_run(tmp_path, Dated(day)) for day in range(2))
    record = json.loads((b.path / "run.json").read_text())
    record["settings"]["workloads"] = {"other": record["settings"]["workloads"][IC]}
    (b.path / "run.json").write_text(json.dumps(record))
    found = [(each.name, each.values) for each in compared(a, b).settings]
    assert found == [
        (f"workloads.{IC}", ("5 settings", None)),
        ("workloads.other", (None, "5 settings")),
    ]


def test_reasons_are_said_once_below_the_table(tmp_path: Path, vflops: Vflops) -> None:
    a = dated_run(tmp_path, Dated(0, memory=2e10, cpu="\x1b[31mRed"))
    b = dated_run(tmp_path, Dated(1, memory=3e10))
    done = vflops("compare", a.path, b.path, "--page", "page.html")
    assert done.stdout.count("1 repeat, 3 are needed") == 1
    assert "cannot tell: 1 repeat, 3 are needed (memory copy)" in done.stdout
    assert "\x1b" not in done.stdout and r"\x1b[31mRed" in done.stdout
    assert "<h1>B against A</h1>" in (tmp_path / "page.html").read_text()


def test_models_are_counted_whole() -> None:
    assert format_value("models", 4.0) == "4 models"
