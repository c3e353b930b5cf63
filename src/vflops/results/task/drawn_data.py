"""The synthetic data of the profiles, which every machine draws with the same bytes."""

from __future__ import annotations

from functools import cache

from vflops.config.training import WorkloadSettings
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.spec import WorkloadSpec

FINGERPRINTS: dict[str, dict[str, str]] = {
    "image-classification": {
        "tiny": "44cdb1b45efa7c1b9a2fb67b9df15b75de0fbc7104de5e7c3f3d9518366b29ce",
        "laptop": "666c0941c5618eec5ac115b3f6a73376624292ecb914587af936f95cdba7f592",
        "gpu": "154a690b149552f5ba96c625e8c658eb86a6983355997d5344b281da81a9ce31",
    },
    "automl": {
        "tiny": "f6322481cc4253403ef90f67879b049e61f00e994a50d18867a5dda3bae67c9a",
        "laptop": "9fc5304f82a060a653180db9e7f88fb2d5df48b0f465b8b91882812a7732564e",
        "gpu": "ecdaf5d91cefc77ff58f6b34778a838dd339f9e9973bab4b8180574f87cd94ff",
    },
    "extreme-weather": {
        "tiny": "1337a181f80cf5bf2aaf111c7ab6b6854cd86bcf170d254a877bdf49a9345ade",
        "laptop": "36a497782d58cfd2206f69f3ed981094be6938d4cf288a727124597ac556edbe",
        "gpu": "8bdb226cf9c7e338fa0ad0cb79af81387158a88bca75fe54a4200aaa16c87474",
    },
}
"""The checksum of the data by workload and profile."""


def is_as_drawn(spec: WorkloadSpec, settings: WorkloadSettings, fingerprint: str) -> bool:
    """Whether data may be what a machine draws from the settings.

    The answer is yes if no profile draws from these settings: the checksum is not known then.
    """
    drawn_from = _drawn_from(settings)
    return all(
        fingerprint == known
        for profile, known in FINGERPRINTS.get(spec.name, {}).items()
        if _profile_drawn_from(spec.name, profile) == drawn_from
    )


def profile_fingerprint(spec: WorkloadSpec, settings: WorkloadSettings) -> str | None:
    """Return the checksum of the profile's data that differs from the settings' in the seed only.

    None if there is no such profile.
    """
    wanted = {**_drawn_from(settings), "seed": None}
    for profile, known in FINGERPRINTS.get(spec.name, {}).items():
        if {**_profile_drawn_from(spec.name, profile), "seed": None} == wanted:
            return known
    return None


@cache
def _profile_drawn_from(name: str, profile: str) -> dict[str, object]:
    return _drawn_from(workload(name).profile(profile))


def _drawn_from(settings: WorkloadSettings) -> dict[str, object]:
    """Return the settings of the synthetic data, without the target."""
    section: dict[str, object] = settings.model_dump(include={"synthetic"}).get("synthetic", {})
    return {name: value for name, value in section.items() if name != "target"}
