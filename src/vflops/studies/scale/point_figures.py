"""The figures of a point of an experiment: those of an ensemble, or of a search."""

from __future__ import annotations

from vflops.record.files.document import Data
from vflops.record.formats.job import SampleUnit
from vflops.record.formats.job_events import KernelTime
from vflops.results.score.node_usage import NodeUsage
from vflops.results.score.score_file import SearchMoment
from vflops.results.task.task import TaskKind


class Figures(Data):
    """The figures that every point has."""

    partial: bool
    """Whether a planned job is missing."""
    attempts: int
    """The largest number of attempts at a job; its time includes interruptions."""
    checks_failed: int
    """The number of rules that the run breaks."""
    window_s: float
    """The time from the first step of the first job to the end of the last job's work."""
    efficiency: float | None = None
    """Operations per second and slot, relative to the base; for variants, to that of the same
    variant."""
    efficiency_valid: float | None = None
    """The same, with operations per second times the quality factor."""
    usage: NodeUsage | None = None
    """How the point used its nodes; None in files of older versions."""

    @property
    def rate(self) -> float | None:
        """Operations per second; None if not known."""
        raise NotImplementedError

    @property
    def valid(self) -> float | None:
        """Operations per second times the quality factor."""
        raise NotImplementedError


class CeilingFigure(Data):
    """The peak speed of one operation in one precision."""

    benchmark: str
    case: str
    """The operation, such as ``forward`` or ``input-gradient`` of a convolution."""
    precision: str
    flops: float | None
    """None if it was not measured; then ``doubt`` is the reason."""
    doubt: str | None = None
    """Why the speed is missing or may be wrong; None if neither is the case."""
    node: str | None = None
    """The compute node that was measured; None on a single machine."""

    @property
    def operation(self) -> tuple[str, str, str | None]:
        """What must be equal for two precisions to be compared."""
        return self.benchmark, self.case, self.node


class EnsembleFigures(Figures):
    """The figures of an ensemble; they are means over the repeats."""

    repeats: int
    flops: float | None
    """Operations of all models divided by ``window_s``; None if not known."""
    flops_epoch: float | None = None
    """By equations 4 and 6 of HPC AI500 V3.0: operations of an epoch of all models divided by the
    training time of an epoch of the slowest, without evaluations; None if not known."""
    flops_least: float | None
    """The minimum over the repeats."""
    flops_most: float | None
    """The maximum over the repeats."""
    vflops: float | None
    """FLOPS × the quality factor, which is at most 1."""
    vflops_published: float | None = None
    """FLOPS × the quality factor as published; None if it is infinite, and in files of older
    versions, whose ``vflops`` are as published."""
    quality: float
    """The quality of the ensemble."""
    quality_alone: float
    """The mean quality of single models."""
    quality_factor: float | None = None
    """The quality factor, at most 1; None in files of older versions."""
    penalty: float | None = None
    """The quality factor as published, (quality / target)ⁿ; None if it is infinite."""
    time_to_quality_s: float | None = None
    """The time until the last single model reached the target; None if one never did."""
    samples_per_s: float | None = None
    """Samples per second of a model, as the mean over all models; None if not known."""
    unit: SampleUnit | None = None
    """What a sample consists of, such as tokens; None if speeds are quoted in samples."""
    exchanged_bytes: float | None = None
    """Gradient bytes that the ranks of a model sent per step; None if not counted."""
    sent_near_b_per_s: float | None = None
    """Bytes per second that the ranks of all models sent within nodes; None if not counted."""
    sent_far_b_per_s: float | None = None
    """Bytes per second that the ranks of all models sent between nodes; None if not counted."""
    kernels: tuple[KernelTime, ...] = ()
    """The kernel time of a few steps of the first model; empty if it was not profiled."""
    ceilings: tuple[CeilingFigure, ...] = ()
    """The measured peak speeds that the training is compared with; empty if not measured."""
    emulated: str | None = None
    """A remark if the device emulates the precision."""
    compilation_s: float | None = None
    """Seconds of the first model's compilation; None if not known."""
    own_count_share: float | None = None
    """Operations of a step as the framework counts them, relative to ours; None if it does not."""
    framework_version: str | None = None
    """The version of a framework besides PyTorch, or of PyTorch."""
    task: TaskKind | None = None
    """Whether its task is closed; VFLOPS of an open task are not comparable."""
    speedup: float | None = None
    """FLOPS relative to the first variant at the same size."""
    quality_change: float | None = None
    """Quality minus that of the first variant at the same size."""

    @property
    def units_per_s(self) -> float | None:
        """The speed of a model in units of samples, such as tokens, or else in samples."""
        per_s = self.samples_per_s
        return per_s if per_s is None or self.unit is None else per_s * self.unit.count

    @property
    def rate(self) -> float | None:
        """FLOPS."""
        return self.flops

    @property
    def valid(self) -> float | None:
        """VFLOPS."""
        return self.vflops


class SearchFigures(Figures):
    """The figures of a search."""

    ops_per_s: float | None
    """The largest operations per second of all samples over time that count."""
    regulated: float | None
    """The largest −ln(error) · operations per second of these samples."""
    error: float | None
    """The error of the best model."""
    architectures: int
    """The number of different architectures that were tried."""
    idle_share: float | None
    """The share of the workers' time between candidates."""
    converged: bool | None
    """Whether operations per second were stable in the last fifth of the time; None if unknown."""
    broken: tuple[str, ...]
    """Why the search is not valid by AIPerf's rules; empty if it is."""
    deviations: tuple[str, ...]
    """Deviations from AIPerf's table IV."""
    moments: tuple[SearchMoment, ...]
    """The score over time."""
    seed: int | None = None
    """The seed, and the following figures, of experiments of the kind ``searches``."""
    candidates: int | None = None
    """The number of candidates that were begun."""
    ops: int | None = None
    """The operations of all candidates."""
    ops_to_target: int | None = None
    """The operations until the target error was reached; None if it never was."""
    time_to_target_s: float | None = None
    """Seconds from the start of the search until then."""

    @property
    def mean_ops_per_s(self) -> float | None:
        """All operations divided by all seconds."""
        return self.ops / self.window_s if self.ops is not None and self.window_s else None

    @property
    def rate(self) -> float | None:
        """OPS."""
        return self.ops_per_s

    @property
    def valid(self) -> float | None:
        """The regulated score."""
        return self.regulated
