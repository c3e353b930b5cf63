"""What vendors state about accelerators: upper bounds for what a measurement can be believed.

Scores and rankings never depend on these figures: their peaks are measured. The share of the
vendor's peak is shown beside the MFU, under its own name. Peaks are dense: figures that count the
zeros of structured sparsity are twice as high and are not used. ``idle_w`` is about half of what
such a device draws when nothing runs on it, so that only a power far below that is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

SLACK = 1.05
"""Devices may run above the clock of the data sheet: by a few percent, as boost clocks do."""
OVERCLOCKED = 1.25
"""The same for graphics cards of the desktop, which board makers and users overclock."""
_PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
_TERA, _GIGA = 1e12, 1e9


@dataclass(frozen=True)
class DataSheet:
    """The peaks and the power of one kind of accelerator."""

    words: tuple[str, ...]
    """The words that the name of a device must contain, in lower case."""
    flops: dict[str, float]
    """Dense peak by precision, in FLOPS; a precision that the device has not is left out."""
    bytes_s: float
    """Bandwidth of its memory."""
    tdp_w: float | None
    idle_w: float | None
    """A floor of its power; None if none is known."""
    source: str
    slack: float = SLACK
    matrix_units: bool = True
    """Whether low precisions run on matrix units, which have no faster way of convolution."""

    def peak(self, precision: str) -> float:
        """Return the highest speed to be believed of a matrix product in a precision.

        Libraries may compute a wide precision exactly enough with several products of a narrow
        one: fp32 with three products in tf32, fp64 with 20 or more in int8. A precision that the
        device does not have is computed in another one, so any peak bounds it.
        """
        peaks = self.flops
        if precision not in peaks:
            return self.slack * max(peaks.values())
        emulated = {"fp32": peaks.get("tf32", 0.0) / 3, "fp64": peaks.get("int8", 0.0) / 20}
        return self.slack * max(peaks[precision], emulated.get(precision, 0.0))


def _part(
    name: str,
    tflops: tuple[float | None, ...],
    gb_s: float,
    watts: tuple[float | None, float | None],
    source: str,
    *,
    slack: float = SLACK,
    matrix_units: bool = True,
) -> DataSheet:
    """Return a data sheet; ``tflops`` by ``_PRECISIONS``, ``watts`` for TDP and the idle floor."""
    peaks = zip(_PRECISIONS, tflops, strict=True)
    flops = {precision: _TERA * peak for precision, peak in peaks if peak is not None}
    words = tuple(name.split())
    tdp_w, idle_w = watts
    return DataSheet(words, flops, _GIGA * gb_s, tdp_w, idle_w, source, slack, matrix_units)


def _desktop(
    name: str, tflops: tuple[float | None, ...], gb_s: float, tdp_w: float, source: str
) -> DataSheet:
    return _part(name, tflops, gb_s, (tdp_w, 3.0), source, slack=OVERCLOCKED)


_NO = None
DATA_SHEETS: tuple[DataSheet, ...] = (
    # name, (fp64, fp32, tf32, bf16, fp16, fp8, int8), GB/s, (TDP, idle floor), source
    _part("p100", (5.3, 10.6, _NO, _NO, 21.2, _NO, _NO), 732, (300, 12),
          "NVIDIA Tesla P100 data sheet, 2016", matrix_units=False),
    _part("p40", (_NO, 12.0, _NO, _NO, _NO, _NO, 47.0), 346, (250, 5),
          "NVIDIA Tesla P40 data sheet, 2017", matrix_units=False),
    _part("p4", (_NO, 5.5, _NO, _NO, _NO, _NO, 22.0), 192, (75, 3),
          "NVIDIA Tesla P4 data sheet, 2017", matrix_units=False),
    _part("v100", (7.8, 15.7, _NO, _NO, 125, _NO, _NO), 900, (350, 12),
          "NVIDIA V100 data sheet, 2020"),
    _part("v100s", (8.2, 16.4, _NO, _NO, 130, _NO, _NO), 1134, (250, 12),
          "NVIDIA V100 data sheet, 2020"),
    _part("t4", (_NO, 8.1, _NO, _NO, 65, _NO, 130), 320, (70, 4), "NVIDIA T4 data sheet, 2019"),
    _part("rtx 8000", (_NO, 16.3, _NO, _NO, 130.5, _NO, 261), 672, (295, 5),
          "NVIDIA Quadro RTX 8000 data sheet, 2018"),
    _part("a100", (19.5, 19.5, 156, 312, 312, _NO, 624), 2039, (500, 20),
          "NVIDIA A100 data sheet, 2022"),
    _part("a100 40gb", (19.5, 19.5, 156, 312, 312, _NO, 624), 1555, (400, 15),
          "NVIDIA A100 data sheet, 2021"),
    _part("a100 80gb pcie", (19.5, 19.5, 156, 312, 312, _NO, 624), 1935, (300, 15),
          "NVIDIA A100 data sheet, 2022"),
    _part("a800", (19.5, 19.5, 156, 312, 312, _NO, 624), 2039, (400, 15),
          "NVIDIA A800 data sheet, 2022"),
    _part("a2", (_NO, 4.5, 9, 18, 18, _NO, 36), 200, (60, 2), "NVIDIA A2 data sheet, 2021"),
    _part("a10", (_NO, 31.2, 62.5, 125, 125, _NO, 250), 600, (150, 7),
          "NVIDIA A10 data sheet, 2021"),
    _part("a10g", (_NO, 35, 70, 140, 140, _NO, 280), 600, (300, 7),
          "NVIDIA A10G, as AWS describes EC2 G5, 2021"),
    _part("a16", (_NO, 4.5, 9, 18, 18, _NO, 36), 200, (250, 4), "NVIDIA A16 data sheet, 2021"),
    _part("a30", (10.3, 10.3, 82, 165, 165, _NO, 330), 933, (165, 12),
          "NVIDIA A30 data sheet, 2022"),
    _part("a40", (_NO, 37.4, 74.8, 149.7, 149.7, _NO, 299.3), 696, (300, 10),
          "NVIDIA A40 data sheet, 2022"),
    _part("a5000", (_NO, 27.8, 55.6, 111.1, 111.1, _NO, 222.2), 768, (230, 5),
          "NVIDIA RTX A5000 data sheet, 2021"),
    _part("a6000", (_NO, 38.7, 77.4, 154.8, 154.8, _NO, 309.7), 768, (300, 5),
          "NVIDIA RTX A6000 data sheet, 2022"),
    _part("l4", (_NO, 30.3, 60.5, 121, 121, 242.5, 242.5), 300, (72, 5),
          "NVIDIA L4 data sheet, 2023"),
    _part("l20", (_NO, 59.8, 59.8, 119.5, 119.5, 239, 239), 864, (275, 10),
          "NVIDIA L20 data sheet, 2023"),
    _part("l40", (_NO, 90.5, 90.5, 181, 181, 362, 362), 864, (300, 10),
          "NVIDIA L40 data sheet, 2023"),
    _part("l40s", (_NO, 91.6, 183, 366, 366, 733, 733), 864, (350, 10),
          "NVIDIA L40S data sheet, 2023"),
    _part("rtx 6000 ada", (_NO, 91.1, 182.1, 364.2, 364.2, 728.5, 728.5), 960, (300, 5),
          "NVIDIA RTX 6000 Ada data sheet, 2023"),
    _part("h100", (67, 67, 494.7, 989.4, 989.4, 1978.9, 1978.9), 3352, (700, 30),
          "NVIDIA H100 data sheet, SXM, 2023"),
    _part("h100 pcie", (51.2, 51.2, 378, 756, 756, 1513, 1513), 2039, (350, 20),
          "NVIDIA H100 data sheet, PCIe, 2022"),
    _part("h100 nvl", (60, 60, 417.5, 835.5, 835.5, 1671, 1671), 3938, (400, 25),
          "NVIDIA H100 NVL data sheet, 2024"),
    _part("h800", (1, 67, 494.7, 989.4, 989.4, 1978.9, 1978.9), 3352, (700, 30),
          "NVIDIA H800 data sheet, 2023"),
    _part("h20", (1, 44, 74, 148, 148, 296, 296), 4000, (500, 30), "NVIDIA H20 data sheet, 2024"),
    _part("h200", (67, 67, 494.7, 989.4, 989.4, 1978.9, 1978.9), 4800, (700, 35),
          "NVIDIA H200 data sheet, SXM, 2024"),
    _part("h200 nvl", (60, 60, 417.5, 835.5, 835.5, 1671, 1671), 4800, (600, 30),
          "NVIDIA H200 data sheet, NVL, 2024"),
    _part("gh200", (67, 67, 494.7, 989.4, 989.4, 1978.9, 1978.9), 4900, (1000, 30),
          "NVIDIA GH200 data sheet, 2024"),
    _part("b100", (30, 60, 900, 1800, 1800, 3500, 3500), 8000, (700, 45),
          "NVIDIA Blackwell architecture brief, 2024"),
    _part("b200", (40, 80, 1200, 2250, 2250, 4500, 4500), 8000, (1000, 50),
          "NVIDIA DGX B200 data sheet, 2024"),
    _part("gb200", (40, 80, 1250, 2500, 2500, 5000, 5000), 8000, (1200, 50),
          "NVIDIA GB200 NVL72 data sheet, 2024"),
    _part("b300", (1.4, 80, 1250, 2500, 2500, 5000, 330), 8000, (1400, 50),
          "NVIDIA HGX B300 data sheet, 2025"),
    _part("gb300", (1.4, 80, 1250, 2500, 2500, 5000, 330), 8000, (1400, 50),
          "NVIDIA GB300 NVL72 data sheet, 2025"),
    _part("gb10", (_NO, 31, 62.5, 125, 125, 250, 250), 273, (140, 2),
          "NVIDIA DGX Spark data sheet, 2025"),
    _desktop("rtx 2080 ti", (_NO, 13.4, _NO, _NO, 107.6, _NO, 215.2), 616, 250,
             "NVIDIA Turing whitepaper, 2018"),
    _desktop("rtx 3080", (_NO, 34.1, 34.1, 68.2, 136.4, _NO, 272.8), 912, 350,
             "NVIDIA GA102 whitepaper, 2021"),
    _desktop("rtx 3090", (_NO, 40.0, 40.0, 80, 160, _NO, 320), 1008, 450,
             "NVIDIA GA102 whitepaper, 2022"),
    _desktop("rtx 4080", (_NO, 52.2, 52.2, 104.4, 208.9, 417.8, 417.8), 736, 320,
             "NVIDIA Ada whitepaper, 2024"),
    _desktop("rtx 4090", (_NO, 82.6, 82.6, 165.2, 330.3, 660.6, 660.6), 1008, 450,
             "NVIDIA Ada whitepaper, 2023"),
    _desktop("rtx 5080", (_NO, 56.3, 56.3, 112.6, 225.1, 450.2, 450.2), 960, 360,
             "NVIDIA RTX Blackwell whitepaper, 2025"),
    _desktop("rtx 5090", (_NO, 104.8, 104.8, 209.5, 419, 838, 838), 1792, 575,
             "NVIDIA RTX Blackwell whitepaper, 2025"),
    _desktop("rtx pro 6000", (_NO, 126, 252, 503.8, 503.8, 1007.6, 1007.6), 1792, 600,
             "NVIDIA RTX PRO 6000 Blackwell data sheet, 2025"),
    _part("mi50", (6.7, 13.4, _NO, _NO, 26.8, _NO, 53.6), 1024, (300, 8),
          "AMD Radeon Instinct MI50 data sheet, 2018", matrix_units=False),
    _part("mi60", (7.4, 14.7, _NO, _NO, 29.5, _NO, 59), 1024, (300, 8),
          "AMD Radeon Instinct MI60 data sheet, 2018", matrix_units=False),
    _part("mi100", (11.5, 46.1, _NO, 92.3, 184.6, _NO, 184.6), 1229, (300, 15),
          "AMD Instinct MI100 data sheet, 2020"),
    _part("mi210", (45.3, 45.3, _NO, 181, 181, _NO, 181), 1638, (300, 18),
          "AMD Instinct MI210 data sheet, 2022"),
    # Libraries show each half of an MI250 or MI250X as a device; power is that of the whole.
    _part("mi250", (45.3, 45.3, _NO, 181, 181, _NO, 181), 1638, (560, 35),
          "AMD Instinct MI250 data sheet, one of two dies, 2021"),
    _part("mi250x", (47.9, 47.9, _NO, 191.5, 191.5, _NO, 191.5), 1638, (560, 35),
          "AMD Instinct MI250X data sheet, one of two dies, 2021"),
    _part("mi300a", (122.6, 122.6, 490.3, 980.6, 980.6, 1961.2, 1961.2), 5300, (760, 40),
          "AMD Instinct MI300A data sheet, 2023"),
    _part("mi300x", (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9), 5300, (750, 50),
          "AMD Instinct MI300X data sheet, 2023"),
    _part("mi325x", (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9), 6000, (1000, 50),
          "AMD Instinct MI325X data sheet, 2024"),
    _part("mi350x", (72.1, 144.2, _NO, 2306.9, 2306.9, 4613.7, 4613.7), 8000, (1000, 50),
          "AMD Instinct MI350X data sheet, 2025"),
    _part("mi355x", (78.6, 157.3, _NO, 2516.6, 2516.6, 5033.2, 5033.2), 8000, (1400, 50),
          "AMD Instinct MI355X data sheet, 2025"),
    _part("max 1100", (22.2, 22.2, 176.9, 354, 354, _NO, 708), 1229, (300, 20),
          "Intel Data Center GPU Max 1100 product brief, 2023"),
    _part("max 1550", (52.4, 52.4, 419.4, 838.9, 838.9, _NO, 1677.7), 3277, (600, 40),
          "Intel Data Center GPU Max 1550 product brief, 2023"),
    _part("hl 225", (_NO, _NO, _NO, 432, 432, 865, _NO), 2450, (600, 30),
          "Intel Gaudi 2 whitepaper, 2023"),
    _part("gaudi2", (_NO, _NO, _NO, 432, 432, 865, _NO), 2450, (600, 30),
          "Intel Gaudi 2 whitepaper, 2023"),
    _part("hl 325l", (_NO, _NO, _NO, 1835, 1835, 1835, _NO), 3700, (900, 40),
          "Intel Gaudi 3 whitepaper, 2024"),
    _part("gaudi3", (_NO, _NO, _NO, 1835, 1835, 1835, _NO), 3700, (900, 40),
          "Intel Gaudi 3 whitepaper, 2024"),
    _part("tpu v2", (_NO, _NO, _NO, 46, _NO, _NO, _NO), 700, (280, _NO),
          "Google Cloud TPU v2 documentation"),
    _part("tpu v3", (_NO, _NO, _NO, 123, _NO, _NO, _NO), 900, (450, _NO),
          "Google Cloud TPU v3 documentation"),
    _part("tpu v4", (_NO, _NO, _NO, 275, _NO, _NO, 275), 1228, (300, _NO),
          "Google Cloud TPU v4 documentation"),
    _part("tpu v5e", (_NO, _NO, _NO, 197, _NO, _NO, 394), 819, (_NO, _NO),
          "Google Cloud TPU v5e documentation"),
    _part("tpu v5 lite", (_NO, _NO, _NO, 197, _NO, _NO, 394), 819, (_NO, _NO),
          "Google Cloud TPU v5e documentation"),
    _part("tpu v5", (_NO, _NO, _NO, 459, _NO, _NO, 918), 2765, (_NO, _NO),
          "Google Cloud TPU v5p documentation"),
    _part("tpu v5p", (_NO, _NO, _NO, 459, _NO, _NO, 918), 2765, (_NO, _NO),
          "Google Cloud TPU v5p documentation"),
    _part("tpu v6e", (_NO, _NO, _NO, 918, _NO, _NO, 1836), 1640, (_NO, _NO),
          "Google Cloud TPU v6e documentation"),
    _part("tpu v6 lite", (_NO, _NO, _NO, 918, _NO, _NO, 1836), 1640, (_NO, _NO),
          "Google Cloud TPU v6e documentation"),
    _part("ascend910", (_NO, _NO, _NO, _NO, 256, _NO, 512), 1200, (350, 20),
          "Huawei Ascend 910, Hot Chips 31, 2019"),
    _part("ascend910b", (_NO, 100, 200, 400, 400, _NO, 800), 1638, (400, 30),
          "Huawei Atlas 800T A2 product page, 2023"),
)  # fmt: skip


@lru_cache(maxsize=256)
def data_sheet(device_name: str) -> DataSheet | None:
    """Return the data sheet of a device by the name that libraries report; None if unknown.

    If several match, the one with most words is meant: an H100 PCIe is not just an H100.
    """
    name = re.sub(r"ascend ?(910[ab]?)\d*", r"ascend\1", device_name.casefold())
    words = frozenset(re.findall(r"[a-z0-9]+", name))
    matching = [sheet for sheet in DATA_SHEETS if words.issuperset(sheet.words)]
    return max(
        matching,
        key=lambda sheet: (len(sheet.words), max(sheet.flops.values())),
        default=None,
    )
