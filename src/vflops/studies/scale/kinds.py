"""The kinds of experiments: what each is called, which figure it draws, and what its points are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflops.errors import UsageError
from vflops.studies.scale.scale_result import Kind, Size, Variant

_ROOM = "vflops.studies.scale"
_COMMON = ("--repeat",)


@dataclass(frozen=True)
class KindFacts:
    """What distinguishes a kind of experiment from the others."""

    title: str
    figure: str
    """The figures of the papers that it draws."""
    axis: str
    """``package.module:class`` of its axis."""
    options: tuple[str, ...]
    """The options that apply to it; the first one sets its points."""
    of_searches: bool = False


KINDS: dict[Kind, KindFacts] = {
    "weak": KindFacts(
        "Weak scaling",
        "figures 5 and 6 of HPC AI500 V3.0",
        f"{_ROOM}.ensembles:Ensembles",
        ("--scales", "--ranks", *_COMMON),
    ),
    "bagging-vs-data": KindFacts(
        "Bagging against data parallelism",
        "figure 9 of HPC AI500 V3.0",
        f"{_ROOM}.ensembles:Ensembles",
        ("--scales", "--ranks", *_COMMON),
    ),
    "trade-off": KindFacts(
        "Models against ranks",
        "figure 7 of HPC AI500 V3.0",
        f"{_ROOM}.ensembles:Ensembles",
        ("--scale", "--scales", *_COMMON),
    ),
    "optimisations": KindFacts(
        "Optimisations",
        "figure 8 of HPC AI500 V3.0",
        f"{_ROOM}.variants:Variants",
        ("--scales", "--variant", "--ranks", *_COMMON),
    ),
    "data-parallel": KindFacts(
        "Data parallelism",
        "figures 4 and 5 of HPC AI500 V2.0",
        f"{_ROOM}.variants:Variants",
        ("--scales", "--variant", *_COMMON),
    ),
    "precisions": KindFacts(
        "Quality against scale",
        "figure 1 of HPC AI500 V2.0",
        f"{_ROOM}.precisions:Precisions",
        ("--scales", "--precisions", *_COMMON),
    ),
    "kernels": KindFacts(
        "Kinds of kernels",
        "figure 2 of HPC AI500 V2.0",
        f"{_ROOM}.kernel_shares:KernelShares",
        ("--scales", *_COMMON),
    ),
    "frameworks": KindFacts(
        "Frameworks",
        "table 2 of HPC AI500 V3.0, row framework",
        f"{_ROOM}.framework_comparison:FrameworkComparison",
        ("--scales", "--frameworks", "--ranks", *_COMMON),
    ),
    "workers": KindFacts(
        "Score against workers",
        "figures 4 and 5 of AIPerf",
        f"{_ROOM}.worker_scaling:Workers",
        ("--workers", "--ranks", "--for"),
        of_searches=True,
    ),
    "searches": KindFacts(
        "Searches against replays",
        "figure 2 of HPC AI500 V3.0",
        f"{_ROOM}.search_variation:SearchVariation",
        ("--seeds", "--error", "--workers", "--ranks", "--for"),
        of_searches=True,
    ),
}


def sizes(
    kind: Kind,
    scales: Sequence[int],
    ranks: int = 1,
    variants: Sequence[Variant] = (),
    models: Sequence[int] = (),
) -> list[Size]:
    """Return the sizes of the points of an experiment, from the given ``scales``.

    For a trade-off there is a single scale, and a point for each of ``models``, by default for each
    of its divisors.
    """
    if kind in ("precisions", "data-parallel", "kernels"):
        pairs = [(1, scale) for scale in scales]
    elif kind == "bagging-vs-data":
        both = [pair for scale in scales for pair in ((scale, ranks), (1, scale * ranks))]
        pairs = list(dict.fromkeys(both))
    elif kind == "trade-off":
        (scale,) = scales
        divisors = [m for m in range(scale, 0, -1) if scale % m == 0]
        if others := [m for m in models if m not in divisors]:
            raise UsageError(
                f"--scales {others[0]}: {others[0]} models do not divide the {scale} slots of a"
                " trade-off",
                hint=f"choose from {', '.join(map(str, reversed(divisors)))}",
            )
        pairs = [(m, scale // m) for m in divisors if m in (models or divisors)]
    else:
        pairs = [(scale, ranks) for scale in scales]
    names: list[str | None] = [variant.name for variant in variants] or [None]
    return [Size(*pair, name) for pair in pairs for name in names]
