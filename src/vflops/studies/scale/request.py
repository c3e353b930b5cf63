"""The experiment that a user asks for: the options of ``vflops scale``, checked and completed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.studies.scale import variant_choice
from vflops.studies.scale.axis import axis_of
from vflops.studies.scale.experiment import Experiment
from vflops.studies.scale.kinds import KINDS, sizes
from vflops.studies.scale.scale_result import Kind, Size, Variant
from vflops.workloads.contract.registry import workload as find_workload


@dataclass(frozen=True)
class Request:
    """The options that determine the points of an experiment; None for those not given."""

    kind: Kind
    scales: Sequence[int] | None = None
    scale: int | None = None
    workers: Sequence[int] | None = None
    seeds: int | None = None
    error: float | None = None
    ranks: int | None = None
    variant: Sequence[str] | None = None
    precisions: str | None = None
    frameworks: str | None = None
    sharing: Mapping[str, str] = field(default_factory=dict)
    """Settings of how ranks share a model, for points with several ranks."""

    def experiment(self, folder: Path, settings: Settings) -> Experiment:
        """Return the experiment; raise UsageError if a point cannot be run."""
        ((name, section),) = settings.workloads.items()
        train, kind, options = section["train"], self.kind, KINDS[self.kind].options
        variants = self._variants(train)
        ranks = self.ranks or train["ranks"] if "--ranks" in options else 1
        scales = self.workers if kind == "workers" else self.scales
        if kind in ("optimisations", "frameworks"):
            scales = scales or [1]
        if kind == "optimisations" and ranks == 1 and self.ranks is None:
            # A single rank has no communication.
            largest = max(scales or [1])
            ranks = max(capacity_here(settings, 1, "--ranks") // largest, 1)
        axis = axis_of(kind, variants, self.sharing, self.error)
        if kind == "searches":
            points = self._searches(ranks, section["search"]["workers"])
            return Experiment.create(folder, name, axis, points, settings)
        models: Sequence[int] = ()
        if kind == "trade-off":
            models = scales or ()
            scales = [self.scale or capacity_here(settings, ranks, "--scale")]
        elif scales is None:
            largest = capacity_here(settings, ranks, options[0])
            scales = [1 << power for power in range(largest.bit_length())] or [1]
        points = sizes(kind, scales, ranks, variants, models)
        if self.sharing and all(size.ranks == 1 for size in points):
            key, value = next(iter(self.sharing.items()))
            raise UsageError(
                f"{key}={value} needs ranks that share a model, but every point has one rank",
                hint=f"use {'--ranks 2' if '--ranks' in options else options[0] + ' 1,2'}",
            )
        return Experiment.create(folder, name, axis, points, settings)

    def _variants(self, train: Mapping[str, Any]) -> tuple[Variant, ...]:
        """Return the variants to compare at every size; most experiments have none."""
        if self.kind == "frameworks":
            from vflops.studies.scale.framework_comparison import framework_variants

            return framework_variants(self.frameworks)
        if self.kind in ("optimisations", "data-parallel"):
            if self.variant:
                return variant_choice.parse_variants(self.variant)
            return variant_choice.optimisations(train["precision"])
        if self.kind == "precisions":
            if self.precisions is None:
                return variant_choice.default_precisions(train["precision"])
            return variant_choice.precisions([name.strip() for name in self.precisions.split(",")])
        return ()

    def _searches(self, ranks: int, workers: int) -> list[Size]:
        """Return the searches and replays of an experiment; raise if an option is not valid."""
        from vflops.studies.scale.search_variation import DEFAULT_SEEDS, variation_sizes

        if self.error is not None and not 0 < self.error < 1:
            raise UsageError(
                f"--error {self.error:g}: expected a share between 0 and 1",
                hint="e.g. --error 0.2",
            )
        if self.workers is not None:
            if len(self.workers) > 1:
                raise UsageError(
                    f"--workers {','.join(map(str, self.workers))}: all searches of --kind searches"
                    " have one number of workers",
                    hint=f"e.g. --workers {self.workers[-1]}",
                )
            (workers,) = self.workers
        return variation_sizes(self.seeds or DEFAULT_SEEDS, workers, ranks)


def chosen_kind(kind: Kind | None, workload: str, given: Mapping[str, object]) -> Kind:
    """Return the kind of the experiment, by default from the other options.

    Raise if it does not suit the workload, or if options of other kinds are given.
    """
    spec = find_workload(workload)
    implied: dict[str, Kind] = {
        "--variant": "optimisations",
        "--precisions": "precisions",
        "--frameworks": "frameworks",
        "--seeds": "searches",
        "--error": "searches",
    }
    default: Kind = "workers" if spec.is_search else "weak"
    named = next((implied[name] for name in implied if given.get(name) is not None), default)
    chosen = kind or named
    if KINDS[chosen].of_searches != spec.is_search:
        raise UsageError(
            f"--kind {chosen} does not apply to {workload}, which is "
            f"{'a' if spec.is_search else 'not a'} search",
            hint="omit --kind" if spec.is_search else "vflops scale automl, or another --kind",
        )
    if chosen == "frameworks" and len(spec.frameworks) == 1:
        raise UsageError(
            f"--kind frameworks does not apply to {workload}, which is trained with PyTorch only",
            hint="vflops scale image-classification --kind frameworks, or another --kind",
        )
    options = KINDS[chosen].options
    for option, value in given.items():
        if value is not None and option not in options:
            shown = value if value != "" else repr(value)
            raise UsageError(
                f"{option} {shown} does not apply to --kind {chosen}",
                hint=f"its options are {', '.join(options)}",
            )
    return chosen


def split_sharing(assignments: Sequence[str], workload: str) -> tuple[list[str], dict[str, str]]:
    """Split assignments into those for all points and those for points with several ranks."""
    common, sharing = [], {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        key = name.strip().removeprefix("workloads.").removeprefix(f"{workload}.")
        section = key.removeprefix("train.").partition(".")[0]
        if equals and section in ("parallel", "communication"):
            sharing[key] = value.strip()
        else:
            common.append(assignment)
    return common, sharing


def capacity_here(settings: Settings, ranks: int, option: str) -> int:
    """Return how many jobs of ``ranks`` ranks fit on this machine or in the current allocation."""
    from vflops.launch.factory import launcher_class
    from vflops.launch.nodes import known_nodes
    from vflops.launch.placement import capacity

    launch = settings.launch
    if not launcher_class(launch.on).nodes_reserved():
        raise UsageError(
            f"{option} is needed with launch.on = {launch.on}: the size of the allocation is not"
            " known",
            hint=f"add {option} …",
        )
    (section,) = settings.workloads.values()
    return capacity(known_nodes(launch, section["train"]["device"])[: launch.nodes], ranks)
