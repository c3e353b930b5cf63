"""Settings for parallelism and communication between ranks, as in table 2 of HPC AI500 V3.0."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vflops.config.divisors import divisors
from vflops.config.section import Section

ParallelMode = Literal["data", "sharded", "model", "pipeline", "mixed"]
ModelSplit = Literal["layers", "tensor"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
CommunicationMode = Literal["all-reduce", "hierarchical", "torus"]
AllReduceAlgorithm = Literal["auto", "ring", "tree"]
CommunicationPrecision = Literal["fp32", "fp16", "bf16", "int8", "powersgd"]

STAGES_PER_RANK = 2
"""Stages that each rank of an interleaved pipeline holds."""
FIXED_ALGORITHMS: tuple[AllReduceAlgorithm, ...] = ("ring", "tree")
NCCL_ALGORITHM = "NCCL_ALGO"
"""The environment variable that sets the algorithms of NCCL."""


def nccl_algorithm(algorithm: str) -> str:
    """Return the value of ``NCCL_ALGO`` that fixes the algorithm of the all-reduce only.

    Other collectives have no tree: a value for all of them is an error in some versions of NCCL.
    This form needs NCCL 2.24 or later, which torch 2.11 has.
    """
    return f"allreduce:{algorithm}"


class ParallelSettings(Section):
    """How the ranks of a job share its model and its batches."""

    mode: ParallelMode = "data"
    """``data``: each rank has the whole model; ``sharded``: each rank keeps a part of every layer's
    weights and gathers the rest when needed; ``model``: each rank computes a part of the model;
    ``pipeline``: like ``model``, with several micro-batches in flight; ``mixed``: ``data`` between
    copies of the model, and ``pipeline`` or ``model`` within each copy."""
    split: ModelSplit = "layers"
    """How mode ``model`` divides the model: each rank holds some of the layers, or some channels of
    every layer that can be divided."""
    schedule: PipelineSchedule = "1f1b"
    """Schedule of a pipeline; ``train.accumulate`` is its number of micro-batches."""
    mesh: tuple[int, int] | None = Field(default=None, examples=["[2, 2]"])
    """For mode ``mixed``: the number of copies of the model, and the ranks that share each copy;
    their product is P."""
    within: Literal["pipeline", "model"] = "pipeline"
    """For mode ``mixed``: how the ranks of one copy share it."""

    @property
    def inner(self) -> ParallelMode:
        """How ranks share one copy of the model; ``data`` if each rank has a whole copy."""
        return self.within if self.mode == "mixed" else self.mode

    @property
    def effective_schedule(self) -> PipelineSchedule:
        """The schedule that runs the stages of one copy; always ``gpipe`` without a pipeline."""
        return self.schedule if self.inner == "pipeline" else "gpipe"

    @property
    def cuts_layers(self) -> bool:
        """Whether each rank of a copy holds some of the layers."""
        return self.inner == "pipeline" or (self.inner == "model" and self.split == "layers")

    @property
    def divides_channels(self) -> bool:
        """Whether each rank of a copy holds some channels of the layers."""
        return self.inner == "model" and self.split == "tensor"

    def stages(self, ranks: int) -> int:
        """Return the number of stages that a model is cut into."""
        return (
            ranks
            // self.shares(ranks)
            * (STAGES_PER_RANK if self.effective_schedule == "interleaved" else 1)
        )

    def shares(self, ranks: int) -> int:
        """Return the number of parts that a batch is divided into: one per copy of the model."""
        if self.mode == "mixed":
            return self.mesh[0] if self.mesh else 1
        return ranks if self.mode in ("data", "sharded") else 1

    def check(self, ranks: int, accumulate: int, batch: int) -> None:
        """Raise ``ValueError`` if the settings contradict each other.

        ``batch`` is the batch of all copies together.
        """
        if self.mode != "data" and ranks == 1:
            raise ValueError(
                f"parallel.mode {self.mode} shares a model between ranks, but there is only 1: "
                "use --ranks 2 or more, or parallel.mode data"
            )
        self._check_mesh(ranks)
        self._check_unused()
        copies = self.shares(ranks)
        if self.inner == "pipeline":
            self._check_micro_batches(ranks // copies, accumulate, batch // copies)

    def _check_unused(self) -> None:
        """Raise ``ValueError`` for a setting that has no effect: a user who sets it expects one."""
        mode = f"mixed with within {self.within}" if self.mode == "mixed" else self.mode
        for name, used, modes in (
            ("within", self.mode == "mixed", "parallel.mode mixed"),
            ("split", self.inner == "model", "parallel.mode model, or mixed with within model"),
            ("schedule", self.inner == "pipeline", "parallel.mode pipeline, or mixed with one"),
        ):
            value = getattr(self, name)
            if not used and value != type(self).model_fields[name].default:
                raise ValueError(
                    f"parallel.{name} {value} applies only to {modes}, but the mode is {mode}"
                )

    def _check_mesh(self, ranks: int) -> None:
        if self.mode != "mixed":
            if self.mesh is not None:
                raise ValueError(
                    f"parallel.mesh {list(self.mesh)} applies only to parallel.mode mixed, "
                    f"but the mode is {self.mode}"
                )
            return
        candidates = [f"[{n}, {ranks // n}]" for n in divisors(ranks)[1:-1]]
        advice = f"use one of {', '.join(candidates)}" if candidates else "use 4 ranks or more"
        if self.mesh is None:
            raise ValueError(
                f"parallel.mode mixed with {ranks} ranks needs parallel.mesh: copies of the model, "
                f"and ranks that share each; {advice}"
            )
        copies, sharing = self.mesh
        if copies * sharing != ranks or min(self.mesh) < 2:
            raise ValueError(
                f"parallel.mesh {list(self.mesh)} must multiply to {ranks} ranks, each side at "
                f"least 2: {advice}"
            )

    def _check_micro_batches(self, stages: int, parts: int, batch: int) -> None:
        need = "at least as many micro-batches as ranks"
        is_invalid = self.schedule != "gpipe" and parts < stages
        if self.schedule == "interleaved" and parts % stages:
            need = "a number of micro-batches that is a multiple of its ranks"
            is_invalid = True
        if is_invalid:
            step = stages if self.schedule == "interleaved" else 1
            candidates = [n for n in divisors(batch) if n >= stages and n % step == 0]
            target = 2 * stages  # then ranks idle for at most a third of the time
            best = next((n for n in candidates if n >= target), max(candidates, default=None))
            hint = f"--set train.accumulate={best}"
            if best is None:
                hint = (
                    f"a train.batch that is a multiple of {target}, and train.accumulate={target}"
                )
            raise ValueError(
                f"a pipeline of {stages} ranks with schedule {self.schedule} needs {need}, but "
                f"train.accumulate is {parts}: use {hint}"
            )


class CommunicationSettings(Section):
    """How gradients are averaged over the copies of a model."""

    mode: CommunicationMode = "all-reduce"
    """``hierarchical``: reduced within each node, then between one rank per node, then broadcast
    within each node; ``torus``: scattered along rows, summed along columns, gathered along rows."""
    precision: CommunicationPrecision = "fp32"
    """Precision of the messages; ``int8`` and ``powersgd`` add their rounding error to the next
    step's gradients."""
    algorithm: AllReduceAlgorithm = "auto"
    """The algorithm of NCCL's all-reduce: a ``ring``, or a ``tree``, which is its double binary
    tree; ``auto`` leaves the choice to the library. gloo has only a ring."""
    near: int | None = Field(default=None, ge=2)
    """Number of ranks in a group with fast links: a node, or a row of the torus. If None, the ranks
    of a node; if a node has all ranks or only one, the divisor closest to the square root."""

    @property
    def is_plain(self) -> bool:
        """Whether the library's all-reduce is used, in the precision of the gradients."""
        return self.mode == "all-reduce" and self.precision == "fp32"

    def check(self, parallel: ParallelSettings, copies: int) -> None:
        """Raise ``ValueError`` if the copies of a model cannot communicate in this way."""
        if self.near is not None and self.mode == "all-reduce":
            raise ValueError("communication.near applies only to the modes hierarchical and torus")
        if self.is_plain:
            return
        what = f"communication {self.mode} in {self.precision}"
        if parallel.mode not in ("data", "mixed"):
            raise ValueError(
                f"{what} averages gradients over copies of a model, but parallel.mode "
                f"{parallel.mode} has only one copy: use parallel.mode data or mixed"
            )
        if copies < 2:
            raise ValueError(f"{what} needs 2 or more ranks with a copy each: use --ranks 2")
        if self.precision == "powersgd" and self.mode != "all-reduce":
            raise ValueError(f"powersgd supports only all-reduce, not {self.mode}")
        if self.mode != "all-reduce":
            self._check_near(copies, "copies" if parallel.mode == "mixed" else "ranks")

    def check_algorithm(self, parallel: ParallelSettings, copies: int, device: str) -> None:
        """Raise ``ValueError`` if a fixed algorithm would have no effect."""
        if self.algorithm == "auto":
            return
        what = f"communication.algorithm {self.algorithm}"
        if device == "cpu":
            raise ValueError(
                f"{what} is a choice of NCCL, but ranks on a cpu communicate by gloo, whose "
                "all-reduce is a ring: leave it at auto"
            )
        if parallel.mode not in ("data", "mixed") or copies < 2:
            raise ValueError(
                f"{what} is for gradients that are averaged over copies of a model, but there is "
                "only one copy: use --ranks 2 with parallel.mode data, or leave it at auto"
            )
        if self.mode != "all-reduce" or self.precision == "int8":
            raise ValueError(
                f"{what} belongs to an all-reduce by the library, not to mode {self.mode} in "
                f"{self.precision}: use mode all-reduce in another precision, or leave it at auto"
            )

    def _check_near(self, copies: int, what: str) -> None:
        candidates = divisors(copies)[1:-1]
        if not candidates:
            raise ValueError(
                f"{copies} copies of the model cannot be arranged in equal rows for communication "
                f"{self.mode}: use 4, 6, 8 … {what}"
            )
        if self.near is not None and self.near not in candidates:
            raise ValueError(
                f"communication.near {self.near} does not divide {copies} copies of the model into "
                f"equal rows: use one of {', '.join(map(str, candidates))}"
            )
