"""The figures of the papers as data: the points of each, and the values that the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from vflops.studies.scale.point_figures import EnsembleFigures, SearchFigures
from vflops.studies.scale.scale_result import Kind, Point, Scale
from vflops.units import quantity

IMAGES, WEATHER, SEARCH = "image-classification", "extreme-weather", "automl"
TRAININGS = (IMAGES, WEATHER)
Scales = Mapping[str, Scale]
"""The results of one figure, by workload."""


@dataclass(frozen=True)
class Reported:
    """A statement of a paper, and the same figure here."""

    what: str
    paper: str
    """What the paper prints."""
    here: Callable[[Scales], str | None]
    """Returns the figure of these points; None if it was not measured."""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper: one or two workloads at several points."""

    number: str
    """Its number in the paper, such as ``5 and 6``."""
    shows: str
    kind: Kind
    nodes: Callable[[int], list[int]]
    """Returns the numbers of nodes, or of models, of its points on so many nodes."""
    workloads: tuple[str, ...] = TRAININGS
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The optimisations that it compares, by workload."""
    charts: tuple[str, ...] = ()
    """The charts of its page, by their ids."""
    reported: tuple[Reported, ...] = ()

    @property
    def key(self) -> str:
        """The name of its files."""
        return f"figure-{self.number.replace(' and ', '-')}"

    @property
    def name(self) -> str:
        """Its name in a heading."""
        return f"Figure{'s' * (' and ' in self.number)} {self.number}"


@dataclass(frozen=True)
class Paper:
    """The experiments of a paper; its figures are in the order in which they are run."""

    title: str
    profile: str
    machine: str
    """The machine of the paper."""
    figures: tuple[PaperFigure, ...]
    settings: tuple[str, ...] = ()
    """Settings of all points."""
    has_operation_counts: bool = False
    """Whether a table of operation counts of ResNet-50 follows."""

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads of all figures."""
        return tuple(dict.fromkeys(name for figure in self.figures for name in figure.workloads))


def every(nodes: int) -> list[int]:
    """Return 1, 2, 3 … up to eight nodes, as in the papers; for more, the powers of two."""
    return list(range(1, nodes + 1)) if nodes <= 8 else doubling(nodes)


def doubling(nodes: int) -> list[int]:
    """Return 1, 2, 4 … and all nodes."""
    return sorted({1 << power for power in range(nodes.bit_length())} | {nodes})


def ends(nodes: int) -> list[int]:
    """Return 1, half of the nodes, and all of them: 1, 4 and 8 in the papers."""
    return sorted({1, max(nodes // 2, 1), nodes})


def one(nodes: int) -> list[int]:
    """Return a single node."""
    return [1]


def _point(scale: Scale | None, variant: str | None, times: int | None) -> Point | None:
    """Return the complete point with ``times`` the slots of the smallest; by default the largest"""
    if scale is None:
        return None
    own = [p for p in scale.points if p.figures and _is_variant(p.variant, variant)]
    slots = min((point.size.slots for point in scale.points), default=0)
    if times is not None:
        own = [point for point in own if point.size.slots == times * slots]
    return max(own, key=lambda point: (point.size.slots, point.jobs), default=None)


def _is_variant(name: str | None, variant: str | None) -> bool:
    """Whether a point has the variant; ``mixed`` is any mixed precision."""
    return variant in (None, name) or (variant == "mixed" and str(name).startswith("mixed-"))


def _size(point: Point) -> str:
    return f"{point.jobs} × {point.ranks}"


def _at(
    workload: str,
    figure: str,
    variant: str | None = None,
    times: int | None = None,
    form: Callable[[float], str] = "{:.2f}".format,
) -> Callable[[Scales], str | None]:
    """Return a function that formats one figure of one point."""

    def here(scales: Scales) -> str | None:
        point = _point(scales.get(workload), variant, times)
        value = getattr(point.figures, figure, None) if point else None
        return None if point is None or value is None else f"{form(value)} at {_size(point)}"

    return here


def _flops(value: float) -> str:
    return quantity(value, "FLOPS")


def _share(value: float) -> str:
    return f"{100 * value:+.2g} points".replace("-", "−")


def _scaling(workload: str) -> Callable[[Scales], str | None]:
    """Return a function that says how far FLOPS and VFLOPS scale to the largest point."""

    def here(scales: Scales) -> str | None:
        point = _point(scales.get(workload), None, None)
        if point is None or point.figures is None or point.figures.efficiency is None:
            return None
        known = (point.figures.efficiency, point.figures.efficiency_valid)
        shown = " and ".join("—" if value is None else f"{value:.2f}" for value in known)
        return f"{shown} of linear at {_size(point)}"

    return here


def _quality_drop(scales: Scales) -> str | None:
    """Return the quality with one model minus that with the most models."""
    scale = scales.get(IMAGES)
    done = sorted(scale.completed(EnsembleFigures), key=lambda d: d[0].jobs) if scale else []
    if len({point.jobs for point, _ in done}) < 2:
        return None
    change = done[0][1].quality - done[-1][1].quality
    return f"{_share(change)} with {_size(done[0][0])} against {_size(done[-1][0])}"


def _bagging_and_data(workload: str) -> Callable[[Scales], str | None]:
    """Return a function that compares the two efficiencies at the largest number of slots."""

    def here(scales: Scales) -> str | None:
        done = list(scales[workload].completed(EnsembleFigures)) if workload in scales else []
        most = max((point.size.slots for point, _ in done), default=0)
        known = {p.jobs > 1: own.efficiency for p, own in done if p.size.slots == most}
        if len(known) < 2 or None in known.values():
            return None
        return f"bagging {known[True]:.2f}, data parallelism {known[False]:.2f}, {most} slots"

    return here


def _utilisation(workload: str) -> Callable[[Scales], str | None]:
    """Return a function with the mean utilisation of the largest point."""

    def here(scales: Scales) -> str | None:
        point = _point(scales.get(workload), None, None)
        usage = point.figures.usage if point and point.figures else None
        if point is None or usage is None or (usage.utilisation or usage.processors) is None:
            return None
        if usage.utilisation is not None:
            return f"GPUs {usage.utilisation:.0f} % busy at {_size(point)}"
        return f"no GPU; CPUs {usage.processors:.0f} % busy at {_size(point)}"

    return here


def _bandwidths(scales: Scales) -> str | None:
    """Return the bandwidth of both workloads at their largest point in fp32."""
    from vflops.studies.scale.usage_view import total_b_per_s

    points = [_point(scales.get(name), "original", None) for name in (WEATHER, IMAGES)]
    rates = [total_b_per_s(point.figures) if point and point.figures else None for point in points]
    if None in rates:
        return None
    return " and ".join(quantity(rate, "B/s") for rate in rates) + " (weather, images)"


def _largest_kernels(workload: str) -> Callable[[Scales], str | None]:
    """Return a function that names the kinds of kernels with the largest shares."""

    def here(scales: Scales) -> str | None:
        done = list(scales[workload].completed(EnsembleFigures)) if workload in scales else []
        kernels = sorted(done[0][1].kernels, key=lambda k: -k.share) if done else []
        shown = ", ".join(f"{kernel.kind} {kernel.share:.0%}" for kernel in kernels[:3])
        return shown or None

    return here


def _tried(scales: Scales) -> str | None:
    done = list(scales[SEARCH].completed(SearchFigures)) if SEARCH in scales else []
    if not done:
        return None
    point, own = max(done, key=lambda each: each[0].jobs)
    return f"{own.architectures} in {own.window_s / 3600:.2g} h at {_size(point)}"


def _each(
    what: str, paper: str, here: Callable[[str], Callable[[Scales], str | None]]
) -> tuple[Reported, ...]:
    """Return the same statement about both trainings."""
    return tuple(Reported(f"{what}, {name}", paper, here(name)) for name in TRAININGS)


def _by_gpus(
    what: str, workload: str, figure: str, variant: str, values: str
) -> tuple[Reported, ...]:
    """Return the values of V2.0 that are given as ``16: 0.91, 32: 0.85``, by numbers of GPUs."""
    pairs = [item.split(": ") for item in values.split(", ")]
    return tuple(
        Reported(
            f"{what}, {workload}, {variant}, {gpus} GPUs",
            value,
            _at(workload, figure, variant, int(gpus) // 8),
        )
        for gpus, value in pairs
    )


def _flops_of(workload: str, variant: str, value: str) -> Reported:
    """Return the FLOPS that V2.0 reports for 64 GPUs."""
    here = _at(workload, "flops", variant, form=_flops)
    return Reported(f"FLOPS, {workload}, {variant}, 64 GPUs", value, here)


_CLUSTER = "8 nodes of 8 V100 (32 GB), NVLink in a node, 10 Gb/s Ethernet between nodes"
_FOUR = ("original", "mixed", "compression", "mixed+compression")
_FP32 = ("original", "compression")

V3 = Paper(
    title="HPC AI500 V3.0",
    profile="reference",
    machine=_CLUSTER,
    figures=(
        PaperFigure(
            number="5 and 6",
            shows="FLOPS and VFLOPS from 8 to 64 GPUs, 8 per model; utilisation at the largest",
            kind="weak",
            nodes=every,
            charts=("flops", "efficiency", "utilisation"),
            reported=(
                *_each("scaling", "near-linear FLOPS and VFLOPS", _scaling),
                Reported(f"penalty coefficient, {IMAGES}", "0.96", _at(IMAGES, "penalty")),
                Reported(f"penalty coefficient, {WEATHER}", "0.44", _at(WEATHER, "penalty")),
                *_each("utilisation", "high (no number)", _utilisation),
            ),
        ),
        PaperFigure(
            number="9",
            shows="efficiency of bagging and of data parallelism",
            kind="bagging-vs-data",
            nodes=doubling,
            charts=("efficiency",),
            reported=_each(
                "efficiency", "data parallelism much lower (no numbers)", _bagging_and_data
            ),
        ),
        PaperFigure(
            number="7",
            shows="images per second of a model, and quality, with fewer models of more ranks",
            kind="trade-off",
            nodes=ends,
            workloads=(IMAGES,),
            charts=("trade-off",),
            reported=(
                Reported("quality of M = 1 against M = 8", "about 3 % lower", _quality_drop),
            ),
        ),
        PaperFigure(
            number="8",
            shows="speed-up by mixed precision and by compressed communication",
            kind="optimisations",
            nodes=every,
            variants={IMAGES: _FOUR[:3], WEATHER: _FP32},
            charts=("flops", "vflops", "quality"),
            reported=(
                Reported(f"mixed, {IMAGES}", "about 2 ×", _at(IMAGES, "speedup", "mixed")),
                Reported(
                    f"compression, {IMAGES}", "barely any", _at(IMAGES, "speedup", "compression")
                ),
                Reported(
                    f"compression, {WEATHER}", "1.2 ×", _at(WEATHER, "speedup", "compression")
                ),
            ),
        ),
    ),
)

V2 = Paper(
    title="HPC AI500 V2.0",
    profile="reference",
    machine=_CLUSTER,
    settings=("telemetry.kernels=true",),
    figures=(
        PaperFigure(
            number="4 and 5",
            shows="FLOPS of one model from 8 to 64 GPUs, and the bandwidth that it uses",
            kind="data-parallel",
            nodes=doubling,
            variants={IMAGES: _FOUR, WEATHER: _FP32},
            charts=("flops", "efficiency", "bandwidth"),
            reported=(
                *_by_gpus(
                    *("efficiency", IMAGES, "efficiency", "original"),
                    "16: 0.91, 32: 0.85, 64: 0.71",
                ),
                *_by_gpus(
                    *("efficiency", IMAGES, "efficiency", "mixed"), "16: 0.89, 32: 0.82, 64: 0.67"
                ),
                _flops_of(IMAGES, "original", "345 TFLOPS"),
                _flops_of(IMAGES, "compression", "414 TFLOPS"),
                _flops_of(IMAGES, "mixed", "718 TFLOPS"),
                _flops_of(IMAGES, "mixed+compression", "939 TFLOPS"),
                *_by_gpus(
                    *("efficiency", WEATHER, "efficiency", "original"),
                    "16: 0.50, 32: 0.37, 64: 0.36",
                ),
                *_by_gpus(
                    *("speed-up", WEATHER, "speedup", "compression"),
                    "8: 1.2 ×, 16: 1.4 ×, 32: 1.6 ×, 64: 1.5 ×",
                ),
                Reported(
                    f"highest FLOPS, {WEATHER}, compression",
                    "109 TFLOPS",
                    _at(WEATHER, "flops", "compression", form=_flops),
                ),
                Reported("bandwidth in fp32", "weather much higher than images", _bandwidths),
            ),
        ),
        PaperFigure(
            number="1",
            shows="speed of micro benchmarks and of training, and quality, in two precisions",
            kind="precisions",
            nodes=ends,
            workloads=(IMAGES,),
            charts=("picture",),
            reported=(
                Reported(
                    "mixed precision against fp32, ResNet-50, GEMM and convolution",
                    "more than 2 ×",
                    _at(IMAGES, "speedup", "mixed", form="training {:.2f} ×".format),
                ),
                *(
                    Reported(
                        f"accuracy of mixed precision, {nodes} node{'s' * (nodes > 1)}",
                        value,
                        _at(IMAGES, "quality_change", "mixed", nodes, _share),
                    )
                    for nodes, value in (
                        (1, "0.12 % lower"),
                        (4, "about 1 % lower"),
                        (8, "about 1 % lower"),
                    )
                ),
            ),
        ),
        PaperFigure(
            number="2",
            shows="shares of kernel time; the paper has 17 workloads on one GPU, here are ours",
            kind="kernels",
            nodes=one,
            charts=("kernels",),
            reported=_each(
                "dominant kernels", "convolution and matrix multiplication", _largest_kernels
            ),
        ),
    ),
)

AIPERF = Paper(
    title="AIPerf",
    profile="aiperf",
    machine="10 to 50 nodes of 8 V100 (32 GB) for 12 hours",
    has_operation_counts=True,
    figures=(
        PaperFigure(
            number="4 and 5",
            shows="score and regulated score over time and nodes; GPU utilisation and memory",
            kind="workers",
            nodes=doubling,
            workloads=(SEARCH,),
            charts=("ops", "ops-time", "regulated-time", "utilisation", "memory"),
            reported=(
                Reported("scaling of both scores", "linear", _scaling(SEARCH)),
                Reported(
                    "highest score",
                    "56.1 TOPS on 4 nodes of 8 T4; 194.53 POPS on 512 nodes of 8 Ascend 910",
                    _at(SEARCH, "ops_per_s", form=lambda value: quantity(value, "OPS")),
                ),
                Reported("architectures tried", "96 on 50 nodes in 12 h", _tried),
                Reported("utilisation", "high while training (no number)", _utilisation(SEARCH)),
            ),
        ),
    ),
)

PAPERS: dict[str, Paper] = {"v3": V3, "v2": V2, "aiperf": AIPERF}
OPERATION_COUNTS: tuple[tuple[str, str, str, str], ...] = (
    ("FP (training)", "9.97E15", "1.02E16", "1.00E16"),
    ("BP (training)", "—", "2.10E16", "1.95E16"),
    ("BP / FP (training)", "—", "2.0603", "1.9533"),
    ("Total (training)", "—", "3.12E16", "2.95E16"),
    ("FP (validation)", "3.89E14", "3.98E14", "3.90E14"),
    ("Total (training + validation)", "—", "3.16E16", "2.99E16"),
)
"""AIPerf's table VII: what is counted, and by tf.profiler, by nvprof and analytically."""
