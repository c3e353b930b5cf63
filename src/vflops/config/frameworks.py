"""The frameworks that can train a model, and what each of them offers (no framework is imported).

PyTorch trains every workload; the others train those whose network has a neutral description
(``Workload.classifier``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from vflops.config.training import TrainSettings

FrameworkName = Literal["pytorch", "jax", "tensorflow", "mindspore"]
NAMES: tuple[FrameworkName, ...] = get_args(FrameworkName)


@dataclass(frozen=True)
class Framework:
    """A framework besides PyTorch."""

    title: str
    package: str
    """The package that is imported."""
    minimum: tuple[int, int]
    """The oldest release that the backend was tested with."""
    precisions: tuple[str, ...]
    several_ranks: bool
    """Whether ranks can share the training of one model."""
    optimizers: tuple[str, ...] = ("sgd",)

    @property
    def oldest(self) -> str:
        """The oldest release, such as ``0.10``."""
        return ".".join(map(str, self.minimum))

    def refusal(self, train: TrainSettings) -> str | None:
        """Return why it cannot train with these settings, and what would work; else None."""
        name = train.framework
        if train.optimizer not in self.optimizers:
            offered = ", ".join(self.optimizers)
            return (
                f"{self.title} is offered with the optimizer {offered}, not {train.optimizer}: use "
                f"train.optimizer={self.optimizers[0]} or train.framework=pytorch"
            )
        if train.precision not in self.precisions:
            offered = ", ".join(self.precisions)
            return (
                f"{self.title} is offered in {offered}, not in {train.precision}: use "
                f"train.precision={self.precisions[0]} or train.framework=pytorch"
            )
        if train.ranks > 1 and not self.several_ranks:
            return (
                f"{self.title} trains a model with one rank here, not {train.ranks}: train several "
                f"models (--models) or use train.framework=pytorch"
            )
        if train.ranks > 1 and train.parallel.mode != "data":
            return (
                f"{self.title} offers parallel.mode=data, not {train.parallel.mode}: leave it out "
                "or use train.framework=pytorch"
            )
        changed = {
            "train.communication": train.communication != type(train.communication)(),
            "train.batch_norm": train.batch_norm != "local",
            "train.ghosts": train.ghosts > 1,
            "train.compile": train.compile != "auto",
            "train.deterministic": train.deterministic,
        }
        for setting, is_changed in changed.items():
            if is_changed:
                return (
                    f"{setting} is not offered with framework {name}: leave it out or use "
                    "train.framework=pytorch"
                )
        return None


FRAMEWORKS: dict[str, Framework] = {
    "jax": Framework(
        title="JAX",
        package="jax",
        minimum=(0, 10),
        precisions=("fp32", "mixed-bf16"),
        several_ranks=True,
    ),
    "tensorflow": Framework(
        title="TensorFlow",
        package="tensorflow",
        minimum=(2, 21),
        precisions=("fp32", "mixed-bf16"),
        several_ranks=False,
    ),
    "mindspore": Framework(
        title="MindSpore",
        package="mindspore",
        minimum=(2, 10),
        precisions=("fp32",),
        several_ranks=False,
    ),
}
"""The frameworks besides PyTorch, by the name in ``train.framework``."""
