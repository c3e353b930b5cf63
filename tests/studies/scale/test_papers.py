"""The figures of the papers: their points, shared runs, order, and the values beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.scale_points import point, scale
from vflops.cli import options
from vflops.cli.train.paper import (
    check_paper_options,
    data_assignments,
    paper_study,
    print_points,
)
from vflops.config.settings import Settings, given_settings
from vflops.errors import RunFailed, UsageError
from vflops.extensions import import_object
from vflops.launch.placement import NodeResources
from vflops.launch.slurm.slurm_launcher import SlurmLauncher
from vflops.record.formats.job import DataFacts
from vflops.run.observer import RunObserver
from vflops.run.run_size import size_run
from vflops.studies.scale.node_shares import NodeShares, placed
from vflops.studies.scale.paper_page import comparison, operation_counts
from vflops.studies.scale.paper_study import PaperStudy, ceiling_precisions
from vflops.studies.scale.papers import PAPERS, TRAININGS, V2, V3, doubling, ends, every
from vflops.studies.scale.point_figures import EnsembleFigures
from vflops.studies.scale.scale_result import Point, Size
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile, workload_settings

H100 = NodeResources("g", cores=96, memory_mb=1_000_000, gpus=8, gpu_type="h100")
CPU = NodeResources("c", cores=32, memory_mb=100_000)
Cluster = Callable[[NodeResources, int], None]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Replace SLURM's list of nodes; everything else is that of the program."""

    def use(resources: NodeResources, number: int) -> None:
        nodes = [replace(resources, name=f"node{index}") for index in range(number)]
        monkeypatch.setattr("vflops.launch.slurm.slurm_resources.node_resources", lambda *_: nodes)

    monkeypatch.setattr("vflops.launch.slurm.slurm_launcher.require_slurm", lambda: None)
    monkeypatch.setattr(SlurmLauncher, "check", lambda settings: None)
    use(H100, 8)
    return use


def study(
    name: str, folder: Path, *changes: str, profile_name: str = "", ranks: int | None = None
) -> PaperStudy:
    """The study on the nodes of the cluster, by default eight nodes of eight GPUs."""
    paper = PAPERS[name]
    given = ["launch.on=slurm", "launch.nodes=8", *changes]
    settings = {
        workload: load(
            profile(profile_name or paper.profile, [workload]),
            None,
            [*paper.settings, *given],
            keep_batch_per_rank=True,
        )
        for workload in paper.workloads
    }
    return PaperStudy.create(paper, folder, settings, ranks)


def expected_of(name: str, settings: Any) -> DataFacts:
    """The facts of a workload's data, without drawing it."""
    find = import_object(workload(name).expected or "")
    facts: DataFacts = find(settings).facts
    return facts


def names(made: PaperStudy, workload: str) -> list[str]:
    planned = [p for p in made.planned() if p.part.experiment.workload == workload]
    return [f"{p.size} {', '.join(p.figures)} {p.nodes}" for p in planned]


def test_v3_on_64_gpus_has_the_points_of_the_paper_and_no_run_twice(
    tmp_path: Path, cluster: Cluster
) -> None:
    made = study("v3", tmp_path)
    assert {*made.shares.values()} == {NodeShares(nodes=8, ranks=8, ranks_per_node=8)}
    images = names(made, "image-classification")
    # mixed-fp16 is the profile's own precision, so mixed of figure 8 is the run of figure 5.
    assert images[:8] == [
        "1x8 5 and 6, 9, 8 1",
        "2x8 5 and 6, 9, 8 2",
        "3x8 5 and 6, 8 3",
        "4x8 5 and 6, 9, 8 4",
        "5x8 5 and 6, 8 5",
        "6x8 5 and 6, 8 6",
        "7x8 5 and 6, 8 7",
        "8x8 5 and 6, 9, 7, 8 8",
    ]
    assert images[8:13] == ["1x16 9 2", "1x32 9 4", "1x64 9, 7 8", "4x16 7 8", "original/1x8 8 1"]
    assert len(images) == 8 + 3 + 1 + 2 * 8
    assert len(names(made, "extreme-weather")) == 8 + 3 + 2 * 8
    figures = [p.figures[0] for p in made.planned()]
    assert figures == sorted(figures, key=["5 and 6", "9", "7", "8"].index)


def test_v2_and_aiperf_have_the_points_of_the_papers(tmp_path: Path, cluster: Cluster) -> None:
    images = names(study("v2", tmp_path / "v2"), "image-classification")
    scales = (8, 16, 32, 64)
    kinds = ("original", "mixed", "compression", "mixed+compression")
    assert [line.split()[0] for line in images[:16]] == [
        f"{k}/1x{s}" for s in scales for k in kinds
    ]
    assert images[:2] == ["original/1x8 4 and 5, 1 1", "mixed/1x8 4 and 5, 1, 2 1"]
    assert len(images) == 16  # figures 1 and 2 need no run of their own
    workers = study("aiperf", tmp_path / "aiperf")
    assert names(workers, "automl") == [f"{w}x8 4 and 5 {w}" for w in (1, 2, 4, 8)]
    first = workers.planned()[-1]
    settings = first.part.experiment.point_settings(first.size)
    assert first.time_s == 3600 + settings.micro.budget_s  # the search and its ceilings
    assert first.node_hours == 8 * first.time_s / 3600


def test_every_accelerator_has_the_batch_of_the_recipe_and_ceilings_are_measured(
    tmp_path: Path, cluster: Cluster
) -> None:
    made = study("v3", tmp_path)
    for planned in made.planned():
        settings = planned.part.experiment.point_settings(planned.size)
        (section,) = settings.workloads.values()
        per_rank = {"image-classification": 256, "extreme-weather": 8}
        expected = per_rank[planned.part.experiment.workload] * planned.size.ranks
        assert section["train"]["batch"] == expected
        assert settings.micro.benchmarks


def test_a_batch_that_is_too_small_is_refused_before_anything_runs(
    tmp_path: Path, cluster: Cluster
) -> None:
    """The profile laptop has 64 images, 8 for each of 8 ranks, and 32 climate frames."""
    made = study("v3", tmp_path, profile_name="laptop")
    assert made.shares["image-classification"] == NodeShares(8, 8, 8)
    assert made.shares["extreme-weather"] == NodeShares(8, 4, 8)  # not the smaller P for both
    refused = {
        f"{p.part.experiment.workload} {p.size}" for p in made.planned() if p.state == "refused"
    }
    assert {"image-classification 1x16", "extreme-weather 1x8"} <= refused
    assert {"image-classification 2x8", "extreme-weather 2x4"}.isdisjoint(refused)


@pytest.mark.parametrize("resources", [H100, CPU])
@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("ranks", [None, 4, 16])
def test_points_are_real_nodes_for_any_number_of_them(
    tmp_path: Path, cluster: Cluster, resources: NodeResources, number: int, ranks: int | None
) -> None:
    """Each point uses the nodes that are listed, and all nodes are used by the largest."""
    if ranks == 16 and (number == 1 or not resources.gpus):
        return
    cluster(resources, number)
    made = study("v3", tmp_path, f"launch.nodes={number}", ranks=ranks)
    points = [p for p in made.planned() if p.part.experiment.workload == "image-classification"]
    for item in points:
        if item.state == "refused":
            continue
        settings = item.part.experiment.point_settings(item.size)
        placements = placed(settings, "image-classification", item.size).placements
        used = Counter(node for each in placements for node, slots in each.places for _ in slots)
        assert len(used) == item.nodes == settings.launch.nodes
        assert len({*used.values()}) == 1  # every node has as many ranks as the others
    span = 1 if ranks in (None, 4) else 2
    weak = [p for p in points if "5 and 6" in p.figures]
    assert [p.nodes for p in weak] == [span * n for n in every(number // span)]
    if resources.gpus:
        assert all(p.size.slots == 8 * p.nodes for p in weak)


@pytest.mark.parametrize(
    ("resources", "profile_name", "ranks"),
    [(H100, "reference", None), (H100, "gpu", None), (H100, "reference", 4), (CPU, "tiny", None)],
)
@pytest.mark.parametrize("number", [1, 2, 5, 8])
def test_a_point_is_what_run_does_on_as_many_nodes(
    tmp_path: Path,
    cluster: Cluster,
    resources: NodeResources,
    profile_name: str,
    ranks: int | None,
    number: int,
) -> None:
    cluster(resources, 8)
    made = study("v3", tmp_path, profile_name=profile_name, ranks=ranks)
    for name in TRAININGS:
        sizes = {
            p.nodes: p.size
            for p in made.planned()
            if p.part.experiment.workload == name and p.figures[0] == "5 and 6"
        }
        given = ["launch.on=slurm", f"launch.nodes={number}"]
        given += [] if ranks is None else [f"train.ranks={ranks}"]
        run = load(profile(profile_name, [name]), None, given)
        shape = size_run(run, given_settings(None, given)).shapes[name]
        assert (sizes[number].jobs, sizes[number].ranks) == (shape.models, shape.ranks)
        assert made.shares[name].ranks_per_node == shape.ranks_per_node


def test_models_of_a_trade_off_divide_the_nodes(tmp_path: Path, cluster: Cluster) -> None:
    sizes = {}
    for number in range(1, 13):
        cluster(H100, number)
        made = study("v3", tmp_path, f"launch.nodes={number}")
        (part,) = [part for part in made.parts if part.figure.number == "7"]
        sizes[number] = [str(size) for size in part.experiment.sizes]
    assert sizes[5] == ["5x8", "1x40"]
    assert sizes[8] == ["8x8", "4x16", "1x64"]
    assert sizes[9] == ["9x8", "1x72"]


def test_numbers_of_nodes() -> None:
    assert every(8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (doubling(8), doubling(6), doubling(1)) == ([1, 2, 4, 8], [1, 2, 4, 6], [1])
    assert every(12) == [1, 2, 4, 8, 12]
    assert (ends(8), ends(2), ends(1)) == ([1, 4, 8], [1, 2], [1])


def test_the_papers_values_stand_beside_those_of_the_same_point() -> None:
    figure = V2.figures[0]

    def variant(ranks: int, efficiency: float) -> Point:
        plain = point(1, ranks, ranks * efficiency * 1e12)
        return plain.model_copy(update={"variant": "original"})

    measured = scale(variant(8, 1.0), variant(16, 0.9), variant(64, 0.7), kind="data-parallel")
    rows = {row[0]: row[1:] for row in comparison(figure, [measured])}
    name = "efficiency, image-classification, original"
    assert rows[f"{name}, 16 GPUs"] == ("0.91", "0.90 at 1 × 16")
    assert rows[f"{name}, 32 GPUs"] == ("0.85", "—")
    assert rows[f"{name}, 64 GPUs"] == ("0.71", "0.70 at 1 × 64")


def test_table_vii_is_counted_by_the_papers_rules() -> None:
    """By the paper's own program; tables I and II as printed count a convolution more."""
    rows = operation_counts()
    for _, _, _, analytic, printed, original in rows[1:]:
        assert float(original) == pytest.approx(float(analytic), rel=0.004)
        assert float(printed) == pytest.approx(float(analytic), rel=0.02)


def test_ceilings_are_those_of_all_variants() -> None:
    base = profile("reference", ["image-classification"])
    assert ceiling_precisions(V3, "image-classification", base) == ["fp16", "fp32"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: data_assignments(["DIR"], ["a", "b"]), "--data DIR: expected WORKLOAD=DIR"),
        (lambda: data_assignments(["c=DIR"], ["a", "b"]), "--data c=DIR: expected WORKLOAD=DIR"),
        (lambda: check_paper_options("v3", {"--scales": "1"}), "--scales 1 does not apply to"),
    ],
)
def test_wrong_options_are_refused(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_data_of_a_single_workload_needs_no_name() -> None:
    assert data_assignments(["DIR"], ["a"]) == data_assignments(["a=DIR"], ["a"]) == ["a.data=DIR"]


def test_a_point_that_fails_keeps_no_other_from_running_and_is_on_the_page(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study("aiperf", tmp_path)
    ran: list[str] = []

    def run(parent: Path, workload: str, settings: Settings, watch: RunObserver) -> None:
        ran.append(parent.name)
        if parent.name == "2x8":
            raise RunFailed("the node caught fire")

    monkeypatch.setattr("vflops.studies.scale.paper_study.run_to_end", run)
    monkeypatch.setattr("vflops.studies.scale.experiment.Experiment.check_data", lambda *_: None)
    monkeypatch.setattr("vflops.studies.scale.paper_page.chart_library", str)
    made.run(RunObserver())
    assert ran == ["1x8", "2x8", "4x8", "8x8"]
    assert made.failures == {tmp_path / "automl" / "2x8": "the node caught fire"}
    page = made.page_file.read_text()
    assert "automl/2x8 failed:</b> the node caught fire" in page
    assert "194.53 POPS" in page
    assert "Table VII" in page


def test_a_file_of_settings_names_both_workloads(tmp_path: Path, cluster: Cluster) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(
        "[image-classification.train]\nepochs = 3\n[extreme-weather.train]\nepochs = 2\n"
        "[micro]\nbudget_s = 7\n"
    )
    for chosen in (None, "image-classification"):
        made = paper_study(
            *("v3", chosen, tmp_path / "e", "tiny", ["launch.on=slurm", "launch.nodes=2"], []),
            *(config, partial(options.settings, seed=None, keep_batch_per_rank=True), None, None),
        )
        epochs: dict[str, int] = {}
        for part in made.parts:
            settings = part.experiment.settings
            epochs |= {name: own["train"]["epochs"] for name, own in settings.workloads.items()}
            assert settings.micro.budget_s == 7
        both = {"image-classification": 3, "extreme-weather": 2}
        assert epochs == (both if chosen is None else {chosen: 3})


def test_the_list_says_what_is_not_known_and_estimates_only_from_the_same_precision(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    made = study("v3", tmp_path)
    points = made.planned()
    assert all(p.time_s is None for p in points)
    unknown = [None] * len(points)
    print_points(points, unknown)
    shown = " ".join(capsys.readouterr().out.split())
    assert "node-hours" not in shown and "the first point of a workload measures" in shown
    print_points([replace(points[0], time_s=7200.0, time_is_least=True), points[1]], [None, 1])
    shown = " ".join(capsys.readouterr().out.split())
    assert "≥ 2" in shown and "at least 2 node-hours for 1 of them" in shown


def test_the_list_of_a_rehearsal_says_what_the_real_layout_would_need(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["launch.rehearse=true", "launch.nodes=4", "micro.budget_s=1"]
    made = paper_study(
        *("v3", "image-classification", tmp_path / "e", "tiny", given, [], None),
        *(partial(options.settings, seed=None, keep_batch_per_rank=True), 8, None),
    )
    points = made.planned()
    assert (points[3].nodes, points[3].ranks) == (4, 32)
    memories = [made.memory_rank_bytes(point) for point in points]
    print_points(points, memories)
    shown = " ".join(capsys.readouterr().out.split())
    assert "nodes ranks memory state" in shown
    assert "A rehearsal says nothing about their time" in shown
    known = {memory for memory in memories if memory is not None}
    section = workload_settings(points[0].part.experiment.settings)["image-classification"]
    code = workload("image-classification").load_code()
    model = code.create(section, expected_of("image-classification", section)).model()
    weights = sum(weight.numel() for weight in model.parameters())
    assert known == {3 * 4 * weights}  # weights, gradients, momenta


def test_data_is_prepared_once_and_complete_points_are_derived_once(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = study("v3", tmp_path, profile_name="tiny", ranks=2)
    prepared: list[str] = []
    derived: list[Size] = []
    complete: set[Path] = set()
    for name in TRAININGS:
        code = workload(name).load_code()

        def prepare(settings: Any, progress: Any, code: Any = code, name: str = name) -> DataFacts:
            prepared.append(name)
            return expected_of(name, settings)

        monkeypatch.setattr(code, "prepare_data", prepare)

    def run(parent: Path, workload: str, settings: Settings, watch: RunObserver) -> None:
        complete.add(parent)

    def figures(axis: Any, folder: Any, size: Size) -> Any:
        derived.append(size)
        done = point(size.jobs, size.ranks, 1e12).figures
        assert isinstance(done, EnsembleFigures)
        return done

    experiment = "vflops.studies.scale.experiment"
    study_module = "vflops.studies.scale.paper_study"
    for module in (experiment, study_module):
        monkeypatch.setattr(
            f"{module}.existing_run", lambda p: SimpleNamespace(path=p) if p in complete else None
        )
        monkeypatch.setattr(f"{module}.is_complete", lambda folder: True)
    monkeypatch.setattr(f"{experiment}.Experiment._goals", lambda own: iter(()))
    monkeypatch.setattr(f"{experiment}.Experiment._threads_per_rank", lambda own: None)
    monkeypatch.setattr("vflops.studies.scale.ensembles.Ensembles.figures", figures)
    monkeypatch.setattr(f"{study_module}.run_to_end", run)
    monkeypatch.setattr("vflops.run.validate.check_model", lambda *_: None)
    monkeypatch.setattr("vflops.studies.scale.paper_page.write_paper_page", lambda own: None)
    made.run(RunObserver())
    assert sorted(prepared) == sorted(TRAININGS)
    uses = [size for part in made.parts for size in part.experiment.sizes]
    assert len(derived) <= len(uses)  # not once for every point that was run since
    before = (len(complete), len(derived))
    made.run(RunObserver())
    assert (len(complete), len(derived)) == before
