from __future__ import annotations

import pytest
import torch

from vflops.config import names
from vflops.machine.ceilings.precisions import PRECISIONS, fp32_arithmetic


def test_every_named_precision_is_known() -> None:
    assert list(PRECISIONS) == list(names.PRECISIONS)


def test_fp32_mode_is_set_everywhere_and_comes_back() -> None:
    before = (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="stop"), fp32_arithmetic("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        with fp32_arithmetic("ieee"):
            assert torch.backends.cudnn.conv.fp32_precision == "ieee"  # type: ignore[attr-defined]
        assert torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
        raise ValueError("stop")
    after = (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)  # type: ignore[attr-defined]
    assert after == before


def test_tolerances_grow_with_coarser_operands() -> None:
    order = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
    tolerances = [PRECISIONS[name].tolerance for name in order]
    assert tolerances == sorted(tolerances)
