"""The frameworks that can train a model, and what each of them offers (no framework is imported).

PyTorch trains every workload; the others train those whose network has a neutral description
(``Workload.classifier``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

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
    across_nodes: bool = False
    """Whether the ranks of one model were tested on several nodes."""
    accelerators: tuple[str, ...] = ()
    """The kinds of accelerators, by torch's names, on which the backend was tested."""
    optimizers: tuple[str, ...] = ("sgd",)

    @property
    def oldest(self) -> str:
        """The oldest release, such as ``0.10``."""
        return ".".join(map(str, self.minimum))


FRAMEWORKS: dict[str, Framework] = {
    "jax": Framework(
        title="JAX",
        package="jax",
        minimum=(0, 10),
        precisions=("fp32", "mixed-bf16", "mixed-fp16"),
        several_ranks=True,
        across_nodes=True,
        accelerators=("cuda",),
    ),
    "tensorflow": Framework(
        title="TensorFlow",
        package="tensorflow",
        minimum=(2, 21),
        precisions=("fp32", "mixed-bf16", "mixed-fp16"),
        several_ranks=True,
    ),
    "mindspore": Framework(
        title="MindSpore",
        package="mindspore",
        minimum=(2, 10),
        precisions=("fp32",),
        several_ranks=True,
    ),
}
"""The frameworks besides PyTorch, by the name in ``train.framework``."""
