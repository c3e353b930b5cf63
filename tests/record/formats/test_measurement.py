"""Measured or absent: never both, never neither."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from vflops.record.formats.measurement import Measurement


@pytest.mark.parametrize(
    ("value", "reason"), [(None, None), (1.0, "but it was measured")], ids=["neither", "both"]
)
def test_a_measurement_has_a_value_or_a_reason(value: Any, reason: Any) -> None:
    with pytest.raises(ValidationError, match="either a value or the reason"):
        Measurement(
            benchmark="gemm",
            case="peak",
            precision="fp32",
            device="cpu",
            unit="FLOPS",
            value=value,
            reason=reason,
        )
