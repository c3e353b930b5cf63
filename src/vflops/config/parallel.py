"""Settings of parallelism and communication between ranks: table 2 of HPC AI500 V3.0."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vflops.config.section import Section

ParallelMode = Literal["data", "sharded", "model", "pipeline", "mixed"]
ModelSplit = Literal["layers", "tensor"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved"]
CommunicationMode = Literal["all-reduce", "hierarchical", "torus"]
CommunicationPrecision = Literal["fp32", "fp16", "bf16", "int8", "powersgd"]

STAGES_PER_RANK = 2
"""Stages per rank of an interleaved pipeline."""


class ParallelSettings(Section):
    """How the ranks of a job share its model and its batches."""

    mode: ParallelMode = "data"
    """``data``: each rank has the whole model; ``sharded``: each keeps a part of every layer's
    weights and gets the rest when it needs them; ``model``: each computes a part of the model;
    ``pipeline``: the same with several micro-batches in flight; ``mixed``: a mesh."""
    split: ModelSplit = "layers"
    """What a rank of mode ``model`` holds: some of the layers, or some channels of every layer that
    can be divided."""
    schedule: PipelineSchedule = "1f1b"
    """Of a pipeline; ``train.accumulate`` is the number of its micro-batches."""
    mesh: tuple[int, int] | None = Field(default=None, examples=["[2, 2]"])
    """Of mode ``mixed``: copies of the model × ranks that share one; their product is P."""
    within: Literal["pipeline", "model"] = "pipeline"
    """Of mode ``mixed``: how the ranks of one copy share it."""

    @property
    def inner(self) -> ParallelMode:
        """How one copy of the model is shared; ``data`` if it is not."""
        return self.within if self.mode == "mixed" else self.mode

    @property
    def effective_schedule(self) -> PipelineSchedule:
        """The schedule of the stages of one copy; without a pipeline it is always ``gpipe``."""
        return self.schedule if self.inner == "pipeline" else "gpipe"

    @property
    def cuts_layers(self) -> bool:
        """Whether each rank of a copy holds some of its layers."""
        return self.inner == "pipeline" or (self.inner == "model" and self.split == "layers")

    @property
    def divides_channels(self) -> bool:
        """Whether each rank of a copy holds some channels of its layers."""
        return self.inner == "model" and self.split == "tensor"

    def stages(self, ranks: int) -> int:
        """Return the number of stages that a model is cut into."""
        return (
            ranks
            // self.shares(ranks)
            * (STAGES_PER_RANK if self.effective_schedule == "interleaved" else 1)
        )

    def shares(self, ranks: int) -> int:
        """Return the parts that a batch is divided into: the copies of the model."""
        if self.mode == "mixed":
            return self.mesh[0] if self.mesh else 1
        return ranks if self.mode in ("data", "sharded") else 1

    def check(self, ranks: int, accumulate: int, batch: int) -> None:
        """Raise ``ValueError`` for a contradiction, with what would fit.

        ``batch`` is that of all copies together.
        """
        if self.mode != "data" and ranks == 1:
            raise ValueError(
                f"parallel.mode {self.mode} shares a model between ranks, and there is 1: "
                "take --ranks 2 or more, or parallel.mode data"
            )
        self._check_mesh(ranks)
        self._check_idle()
        sharing = ranks // self.shares(ranks)
        if self.inner == "pipeline":
            self._check_micro_batches(sharing, accumulate, batch // self.shares(ranks))

    def _check_idle(self) -> None:
        """Refuse settings that would have no effect: a user who sets one expects a difference."""
        mode = f"mixed with within {self.within}" if self.mode == "mixed" else self.mode
        for name, used, belongs in (
            ("within", self.mode == "mixed", "parallel.mode mixed"),
            ("split", self.inner == "model", "parallel.mode model, or mixed with within model"),
            ("schedule", self.inner == "pipeline", "parallel.mode pipeline, or mixed with one"),
        ):
            value = getattr(self, name)
            if not used and value != type(self).model_fields[name].default:
                raise ValueError(
                    f"parallel.{name} {value} belongs to {belongs}, and the mode is {mode}"
                )

    def _check_mesh(self, ranks: int) -> None:
        if self.mode != "mixed":
            if self.mesh is not None:
                raise ValueError(
                    f"parallel.mesh {list(self.mesh)} belongs to parallel.mode mixed, "
                    f"and the mode is {self.mode}"
                )
            return
        fitting = [f"[{n}, {ranks // n}]" for n in range(2, ranks // 2 + 1) if ranks % n == 0]
        fits = f"those that do are {', '.join(fitting)}" if fitting else "take 4 ranks or more"
        if self.mesh is None:
            takes = f"one of {', '.join(fitting)}" if fitting else "4 ranks or more"
            raise ValueError(
                f"parallel.mode mixed of {ranks} ranks needs parallel.mesh, copies of the model × "
                f"ranks that share one: take {takes}"
            )
        copies, sharing = self.mesh
        if copies * sharing != ranks or min(self.mesh) < 2:
            raise ValueError(
                f"parallel.mesh {list(self.mesh)} does not make {ranks} ranks of at least 2 × 2: "
                f"{fits}"
            )

    def _check_micro_batches(self, stages: int, parts: int, batch: int) -> None:
        need = "at least as many micro-batches as ranks"
        bad = self.schedule != "gpipe" and parts < stages
        if self.schedule == "interleaved" and parts % stages:
            need, bad = "a number of micro-batches that is a multiple of its ranks", True
        if bad:
            step = stages if self.schedule == "interleaved" else 1
            fitting = [n for n in range(stages, batch + 1, step) if batch % n == 0]
            most = 2 * stages  # there the bubble is a third or less
            best = next((n for n in fitting if n >= most), max(fitting, default=None))
            hint = f"--set train.accumulate={best}"
            if best is None:
                hint = f"a train.batch that {most} parts divide, and train.accumulate={most}"
            raise ValueError(
                f"a pipeline of {stages} ranks by {self.schedule} needs {need}, and "
                f"train.accumulate is {parts}: take {hint}"
            )


class CommunicationSettings(Section):
    """How gradients are averaged over the copies of a model."""

    mode: CommunicationMode = "all-reduce"
    """``hierarchical``: within a node, between the nodes' leaders, and back; ``torus``: scattered
    along rows, summed along columns, gathered along rows."""
    precision: CommunicationPrecision = "fp32"
    """Of what is sent; ``int8`` and ``powersgd`` carry their error over to the next step."""
    near: int | None = Field(default=None, ge=2)
    """Ranks that are close to each other: those of a node, or of a row of the torus. None: those of
    a node; if a node has all ranks or one, the divisor closest to the square root."""

    @property
    def is_plain(self) -> bool:
        """Whether the library's all-reduce is used, in the precision of the gradients."""
        return self.mode == "all-reduce" and self.precision == "fp32"

    def check(self, parallel: ParallelSettings, copies: int) -> None:
        """Raise ``ValueError`` for what the copies of a model cannot do, with what would fit."""
        if self.near is not None and self.mode == "all-reduce":
            raise ValueError("communication.near belongs to the modes hierarchical and torus")
        if self.is_plain:
            return
        what = f"communication {self.mode} in {self.precision}"
        if parallel.mode not in ("data", "mixed"):
            raise ValueError(
                f"{what} averages gradients over copies of a model, and parallel.mode "
                f"{parallel.mode} has none: take parallel.mode data or mixed"
            )
        if copies < 2:
            raise ValueError(f"{what} needs 2 ranks or more with a copy each: take --ranks 2")
        if self.precision == "powersgd" and self.mode != "all-reduce":
            raise ValueError(f"powersgd sums by all-reduce only, not {self.mode}")
        if self.mode != "all-reduce":
            self._check_near(copies, "copies" if parallel.mode == "mixed" else "ranks")

    def _check_near(self, copies: int, what: str) -> None:
        fitting = [n for n in range(2, copies // 2 + 1) if copies % n == 0]
        if not fitting:
            raise ValueError(
                f"{copies} copies of the model have no rows of equal length for communication "
                f"{self.mode}: take 4, 6, 8 … {what}"
            )
        if self.near is not None and self.near not in fitting:
            raise ValueError(
                f"communication.near {self.near} does not divide {copies} copies of the model in "
                f"rows: take one of {', '.join(map(str, fitting))}"
            )
