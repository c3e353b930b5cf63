"""The public HPC AI500 ranking of 2020, which is collected from papers and unverified.

23 GFLOPs per image, 1.28 M images, 90 epochs and a target of 0.763 reproduce the published
figures with the exponent 10, although the paper says 5 (docs/reference/metrics.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from vflops.metrics import epoch_ops, flops, vflops

OPS_PER_IMAGE, IMAGES, EPOCHS, TARGET, EXPONENT = 23 * 10**9, 1_280_000, 90, 0.763, 10


@dataclass(frozen=True)
class Published:
    """A row of the published list."""

    rank: int
    source: str
    published: float
    """The published score in VPFLOPS."""
    time_min: float
    quality: float
    """Top-1 accuracy."""
    accelerators: str
    disputed: bool = False
    """Whether a figure of the row is in doubt."""

    @property
    def recomputed(self) -> float:
        """The score in VPFLOPS, computed from the time and quality of the row."""
        ops = EPOCHS * epoch_ops(ops_per_sample=OPS_PER_IMAGE, samples=IMAGES)
        speed = flops(ops=ops, time_s=60 * self.time_min)
        valid_flops = vflops(flops=speed, achieved=self.quality, target=TARGET, exponent=EXPONENT)
        return valid_flops / 1e15

    @property
    def deviation(self) -> float:
        """The recomputed over the published score, minus 1."""
        return self.recomputed / self.published - 1


RANKING_2020 = (
    Published(1, "Fujitsu", 31.41, 1.2, 0.751, "V100 × 2048"),
    Published(2, "Google", 20.10, 2.2, 0.763, "TPUv3 × 1024", disputed=True),
    Published(3, "Sony", 10.02, 3.7, 0.750, "V100 × 2176"),
    Published(4, "Tencent", 6.44, 6.6, 0.760, "P40 × 2048", disputed=True),
    Published(5, "Preferred Networks", 2.41, 15, 0.749, "P100 × 1024", disputed=True),
    Published(6, "Berkeley", 1.95, 20, 0.754, "KNL × 2048"),
    Published(7, "Intel", 1.27, 28, 0.746, "KNL × 1536"),
    Published(8, "IBM", 0.75, 50, 0.750, "P100 × 256"),
    Published(9, "Facebook", 0.70, 60, 0.763, "P100 × 1024", disputed=True),
)
