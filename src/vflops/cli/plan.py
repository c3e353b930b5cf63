"""``vflops plan``: what a run would do and need; nothing is run, and no run folder is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vflops.cli import options
from vflops.workloads.spec import ENGINE

if TYPE_CHECKING:
    from vflops.bagging.estimate import Estimate, Speed, Training
    from vflops.bagging.plan import Plan
    from vflops.config.settings import Settings
    from vflops.config.training import WorkloadSettings
    from vflops.flops.count import Count
    from vflops.flops.graph import Graph
    from vflops.record.training import DataFacts, DeclaredWork
    from vflops.score.contents import Contents
    from vflops.workloads.extreme_weather.settings import WeatherSettings
    from vflops.workloads.image_classification.settings import ImageSettings
    from vflops.workloads.spec import WorkloadSpec

_NOT_THE_MODELS = {"train", "data", "target", "synthetic"}
"""Settings that a model is the same with or without; what its data decides is compared itself."""
_SHOWN = 3
"""Models at either end of a long mapping that are shown."""


@dataclass(frozen=True)
class _Data:
    """The data of a workload, as far as it is known before it is there."""

    facts: DataFacts
    size_bytes: int | None
    kept_bytes: int | None
    """Of the predictions of a sample."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    workload: Annotated[
        str | None, typer.Argument(help="What to train, see `vflops list`; everything by default.")
    ] = None,
    profile: options.Profile = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own data, packed; synthetic data by default.")
    ] = None,
    models: Annotated[
        int | None, typer.Option(help="Base models, M; by default as many as fit.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(help="Ranks of a model, P; by default the slots of a node.")
    ] = None,
    scale: Annotated[int | None, typer.Option(help="M × P, where one of them is open.")] = None,
    on: Annotated[
        str | None, typer.Option(help="Where they would train: local, slurm, pbs, lsf, flux.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of a machine that is not here.", min=1)
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="With --nodes: ranks that a node takes.", min=1)
    ] = None,
    waves: Annotated[
        bool, typer.Option("--waves", help="Let models that find no place wait for others.")
    ] = False,
    like: Annotated[
        Path | None, typer.Option(help="An earlier run that says how fast it would be.")
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say what a run would do and need: places, operations, bytes, memory, time."""
    import json as json_

    from vflops.bagging.estimate import estimate
    from vflops.bagging.plan import defaults
    from vflops.bagging.plan import plan as placed
    from vflops.cli import console
    from vflops.config.settings import workload_settings
    from vflops.launch import choose
    from vflops.workloads.registry import workload as find

    flags = {
        "data": data,
        "launch.on": on,
        "bagging.models": models,
        "train.ranks": ranks,
        "bagging.waves": "true" if waves else None,
    }
    given = [
        *(set_ or []),
        *(f"{key}={value}" for key, value in flags.items() if value is not None),
    ]
    what = workload or "suite"
    asked = options.settings(profile, None, config, given, workloads=what)
    devices = {section["train"]["device"] for section in asked.workloads.values()}
    device = devices.pop() if len(devices) == 1 else "auto"
    there = choose.nodes(asked.launch, device, nodes, slots)
    own_models, own_ranks = _wanted(asked)
    m, p = defaults(there, models or own_models, ranks or own_ranks, scale=scale)
    mapping = placed(there, m, p, waves=asked.bagging.waves)
    pair = [f"bagging.models={m}", f"train.ranks={p}"]
    settings = options.settings(asked.profile, None, config, [*given, *pair], workloads=what)
    choose.refuse_misshapen(settings.launch, there, p)
    earlier = console.read_run(like) if like else None
    found = {}
    for name, section in workload_settings(settings).items():
        one, speed, unknown = _training(find(name), section, settings, mapping, earlier)
        found[name] = estimate(mapping, one, repeat=settings.repeat, speed=speed, unknown=unknown)
    if json:
        workloads = {name: each.model_dump(mode="json") for name, each in found.items()}
        places = [
            {"model": each.model, "wave": each.wave, "places": each.places}
            for each in mapping.placements
        ]
        typer.echo(json_.dumps({"workloads": workloads, "placements": places}, indent=1))
        return
    _show(mapping, found)
    again = f"vflops run{f' {workload}' if workload else ''} --profile {settings.profile}"
    again += f" --models {m} --ranks {p}" + " --waves" * settings.bagging.waves
    again += f" --on {on}" * (on is not None) + f" --data {data}" * (data is not None)
    again += f" --config {config}" * (config is not None)
    again += "".join(f" --set {each}" for each in set_ or ())
    if settings.launch.on != "local" and settings.launch.ranks_per_node is None:
        again += f" --set launch.ranks_per_node={min(each.slots for each in there)}"
    console.next_step(again, "there" if nodes and settings.launch.on == "local" else "to do it")


def _wanted(settings: Settings) -> tuple[int | None, int | None]:
    """M and P that a file or ``--set`` gave; 1 is what they are when nobody does."""
    models = settings.bagging.models
    ranks = max(section["train"]["ranks"] for section in settings.workloads.values())
    return models if models > 1 else None, ranks if ranks > 1 else None


def _training(
    spec: WorkloadSpec,
    section: WorkloadSettings,
    settings: Settings,
    mapping: Plan,
    earlier: Contents | None,
) -> tuple[Training, Speed | None, str]:
    """One base model's training, how fast it would be, and else why that is not known."""
    from vflops.bagging.estimate import Training
    from vflops.flops.count import count
    from vflops.flops.graph import Graph
    from vflops.flops.rules import rule_set
    from vflops.score.training import SCORING_RULES

    data = _data(spec, section)
    work = _work(spec, section, data.facts, earlier)
    counted, parameters = None, None
    if isinstance(work, Graph):
        counted, parameters = count(work, rule_set(SCORING_RULES)), work.parameter_count
        ops = counted.total
        forward, total = ops.forward // work.batch, ops.total // work.batch
    else:
        forward, total = work.ops_forward, work.ops_total
    one = Training(
        train=section.train,
        samples=data.facts.train,
        validation=data.facts.validation,
        test=data.facts.test,
        data_bytes=data.size_bytes,
        ops_forward=forward,
        ops_total=total,
        parameters=parameters,
        kept_bytes=data.kept_bytes,
        out_of_bag=settings.bagging.out_of_bag if mapping.models > 1 else None,
    )
    if earlier is None:
        short = f"vflops run {spec.name} --profile {settings.profile} --set train.epochs=1"
        short += " --set train.warmup_epochs=0"
        return one, None, f"not known: give an earlier run, --like RUN; a short one: {short}"
    speed = _speed(spec, one, counted, mapping, earlier)
    name = earlier.folder.path.name
    return one, speed, f"not known: {name} has neither trained {spec.name} nor its ceilings"


def _data(spec: WorkloadSpec, section: WorkloadSettings) -> _Data:
    """What the data is or will be: packed data says it itself, of synthetic data the settings."""
    from vflops.cli import console
    from vflops.workloads.extreme_weather.settings import WeatherSettings
    from vflops.workloads.image_classification.settings import ImageSettings

    if isinstance(section, ImageSettings):
        return _images(section)
    if isinstance(section, WeatherSettings):
        return _frames(section)
    if spec.runner == ENGINE:
        console.say(f"the settings of {spec.name} do not say what its data is like: it is made now")
    return _Data(spec.load_code().prepare_data(section, lambda text, done, whole: None), None, None)


def _images(section: ImageSettings) -> _Data:
    from vflops.bagging.estimate import kept_bytes
    from vflops.data.images.index import CHANNELS
    from vflops.data.images.shards import PackedImages

    made = section.synthetic
    classes, counts = made.classes, [made.train, made.validation]
    size = sum(counts) * CHANNELS * made.size**2
    if section.data is not None:
        index = PackedImages.open(Path(section.data)).index
        classes, size = len(index.classes), sum(file.bytes for file in index.files())
        counts = [index.splits[name].images for name in ("train", "val")]
    label_bytes = 8
    return _Data(_facts(counts, classes=classes), size, kept_bytes((classes,), label_bytes))


def _frames(section: WeatherSettings) -> _Data:
    from vflops.bagging.estimate import kept_bytes
    from vflops.data.climate.frames import PackedFrames
    from vflops.data.climate.index import SPLITS, aligned, frame_bytes
    from vflops.data.climate.names import MOST_BOXES

    made = section.synthetic
    height, width, counts = made.height, made.width, [made.train, made.validation, made.test]
    size = sum(counts) * aligned(frame_bytes(height, width, "half"))
    if section.data is not None:
        index = PackedFrames.open(Path(section.data)).index
        height, width, size = index.height, index.width, sum(file.bytes for file in index.files())
        counts = [index.splits[name].frames if name in index.splits else 0 for name in SPLITS]
    truth_bytes = MOST_BOXES * (4 * 4 + 8) + 4 + 8  # boxes, labels, a draw, the frame's number
    kept = kept_bytes((section.network.detections, 6), truth_bytes)
    return _Data(_facts(counts, height=height, width=width), size, kept)


def _facts(counts: Sequence[int], **facts: int) -> DataFacts:
    from vflops.record.training import DataFacts

    splits = dict(zip(("train", "validation", "test"), counts, strict=False))
    return DataFacts(path="", synthetic=True, fingerprint="", facts=dict(facts), **splits)


def _work(
    spec: WorkloadSpec, section: WorkloadSettings, data: DataFacts, earlier: Contents | None
) -> Graph | DeclaredWork:
    """The model's graph: that of an earlier run of the same model, else captured by torch."""
    from vflops.cli.console import working

    own = section.model_dump(mode="json", exclude=_NOT_THE_MODELS)
    for job in earlier.trained if earlier else ():
        same = {key: job.record.settings.get(key) for key in own} == own
        known = {key: job.record.data.facts.get(key) for key in data.facts} == data.facts
        if earlier and job.record.workload == spec.name and same and known:
            for graph in earlier.graphs:
                if graph.model == spec.name and graph.batch == section.train.rank_batch:
                    return graph
    with working(f"counting {spec.name}"):
        found: Graph | DeclaredWork = spec.load_code().work(section, data, spec.name)
    return found


def _speed(
    spec: WorkloadSpec, one: Training, counted: Count | None, mapping: Plan, earlier: Contents
) -> Speed | None:
    """As an earlier run trained, else as its ceilings allow."""
    from vflops.bagging.estimate import bounding_speed, measured_speed
    from vflops.roofline.analysis import roofs
    from vflops.score.training import training_scores

    run = earlier.folder.path.name
    speed = measured_speed(training_scores(earlier), spec.name, one, run)
    if speed is None and counted is not None:
        on_cpu = any(each.device == "cpu" for each in earlier.measurements if each.precision)
        # Processors were measured as one, and a node's ranks share them; devices one by one.
        share = mapping.ranks / (min(each.slots for each in mapping.nodes) if on_cpu else 1)
        speed = bounding_speed(counted, roofs(earlier.measurements), one, run, share=share)
    return speed


def _show(mapping: Plan, found: Mapping[str, Estimate]) -> None:
    from vflops.bagging.estimate import places, words
    from vflops.cli.columns import columns, heading
    from vflops.score.words import count

    models, ranks = count(mapping.models, "model"), count(mapping.ranks, "rank")
    typer.echo(heading(f"{models} of {ranks}"))
    shown = mapping.placements
    cut = len(shown) > 2 * _SHOWN + 2
    lines = (*shown[:_SHOWN], *shown[-_SHOWN:]) if cut else shown
    table = [[f"{each.model + 1:,}", str(each.wave + 1), places(each)] for each in lines]
    if cut:
        table.insert(_SHOWN, ["…", "", f"{len(shown) - len(lines):,} more"])
    typer.echo(columns([["model", "wave", "node: slots"], *table], right=(0, 1)))
    for name, each in found.items():
        typer.echo("\n" + heading(name))
        typer.echo(columns(words(each)))
