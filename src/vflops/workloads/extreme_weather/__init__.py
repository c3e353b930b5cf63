"""Extreme weather analytics: Faster R-CNN trained to a mean average precision (HPC AI500)."""

from vflops.counting.conventions import PUBLISHED_CONVENTION
from vflops.metrics.quality import EXPONENT_EXTREME_WEATHER
from vflops.workloads.contract.registry import register
from vflops.workloads.contract.spec import Quality, WorkloadSpec
from vflops.workloads.extreme_weather.settings import PROFILES, WeatherSettings


@register
def extreme_weather() -> WorkloadSpec:
    """Return the description of the workload."""
    return WorkloadSpec(
        name="extreme-weather",
        title="Faster R-CNN trained to find extreme weather in climate fields, HPC AI500",
        quality=Quality(name="mAP@0.5", better="higher", exponent=EXPONENT_EXTREME_WEATHER),
        combine="vflops.workloads.extreme_weather.fusion:fuse",
        settings=WeatherSettings,
        profiles=PROFILES,
        rules=PUBLISHED_CONVENTION,
        code="vflops.workloads.extreme_weather.workload:ExtremeWeather",
        exhibit="vflops.workloads.extreme_weather.exhibit:figures",
        expected="vflops.workloads.extreme_weather.expected:expected",
    )
