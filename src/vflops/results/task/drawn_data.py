"""The synthetic data of the profiles, which every machine draws with the same bytes."""

from __future__ import annotations

from functools import cache

from vflops.config.training import WorkloadSettings
from vflops.record.formats.job import DataFacts
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
    "language-model": {
        "tiny": "2834ca5903c6b7d0353fa7c0d376c7d60bc7cee475ca970b610f118d6bdb7617",
        "laptop": "626c64dc652128793b3c60e9be57e6a5d4a080bca6ff2712f4154de4a0ead9de",
    },
}
"""The fingerprint of the data by workload and profile."""

CONTENTS: dict[str, dict[str, dict[str, str]]] = {
    "image-classification": {
        "tiny": {
            "train": "d74f3d9267ddd3f610b1b215d8726fbc35710f9500f90a3b583fbbee99afa5b4",
            "validation": "ee936957058f9a8a170854707c83983e89a67744fe93791a05e19cb9b0ba1d5a",
        },
        "laptop": {
            "train": "98897fa3c5a07858dae761a91bf3a317b86558e5a21cf76c4c671f001d784123",
            "validation": "787a93591dcd05cb8ed7f3802c838a069b6b7aa2afa5f3bb9a00e01bb4b1fbfb",
        },
        "gpu": {
            "train": "51ce11f55cb06e20a580397ca43251f73c49da13ed1d2dd1191e8082eda690b1",
            "validation": "c55cc1dbae403235fb9dd3f109c0903e1092dbdfe66ae061c33ece6d8909ee9b",
        },
    },
    "automl": {
        "tiny": {
            "train": "13ce264890f96ab1ab307250460fafb153d0ef8dcc572b0cd7ed1c5bee7081bc",
            "validation": "ee936957058f9a8a170854707c83983e89a67744fe93791a05e19cb9b0ba1d5a",
        },
        "laptop": {
            "train": "de9b3cae70939e3da2ccb087d952301535c65074e635a91afe52ebaae2baf118",
            "validation": "2fc1b2ddb8413acdc65e3ffdba027442d6ed93ac81d3f1dfdba4ad3a221bdf28",
        },
        "gpu": {
            "train": "227f8208ce50ab1359560e9589b2f9b3df6cf64a87dc99a890b838fe97b0b921",
            "validation": "6fa717f730fc6485da74b4e44f3f7ee3cbe1394fbb85d925cc7e4caff5a5d5a7",
        },
    },
    "extreme-weather": {
        "tiny": {
            "test": "e6250542dda0dd45f6fe763853f3197a3bb27c7600a3a1b15d0240075f45fda5",
            "train": "7f339e633b8d7319c0e84f0f665d95e914cc185270b6499ad6b1d9b0fee286d4",
            "validation": "3ee0ae24bdea4c3765996119dc982e61bad14f66d918eed894ccc92179b6f5fa",
        },
        "laptop": {
            "test": "cd9a5bcd5fef027601a9ac82ef35bd4a7e9b998bbb71af126b989fe67ae1e8f7",
            "train": "112807a2a6f5e8ec248a63b5e9ff1ca95e960d93a40ebe6f863490535d3c6c13",
            "validation": "77a1339fc573279717850bfa7024c2019061b7e956aa5125ba2da3d7acd1010d",
        },
        "gpu": {
            "test": "dffa8fe290d80dffa158a286f1f1a87aaa573c5cc27db1046aaa1424508a1ae5",
            "train": "2e79f6cc7fc45266079670ff4a49f00bc9583fba3bcbee184721af6089b4a83b",
            "validation": "c15966aeee91c2e33fe37fc45b080f8c9f6e488e3606faedd4f5a314306e271a",
        },
    },
    "language-model": {
        "tiny": {
            "train": "c6a8ffc8856f3f1c24a17286242b94dfe3285bf59bd8a7fdd78649b0fe09a9e0",
            "validation": "811d0f43261c68f8f8564658baf31b427b209c128da90c4d5f6536875ae21e7f",
        },
        "laptop": {
            "train": "b19f447ff59ea6216f6c7a4bcc04ebb5c6a43041bdc7796284e12c71a78ab450",
            "validation": "69afad9dd97ac107b9c5fa6fcdadac5b670db3d2f04a212badda84c95a62f518",
        },
    },
}
"""The content hash of every split, by workload and profile."""


def is_as_drawn(spec: WorkloadSpec, settings: WorkloadSettings, data: DataFacts) -> bool:
    """Whether data may be what a machine draws from the settings.

    The answer is yes if no profile draws from these settings: the hashes are not known then.
    Records of older versions have no content hashes.
    """
    drawn_from = _drawn_from(settings)
    return all(
        data.fingerprint == known
        and (not data.contents or data.contents == CONTENTS[spec.name][profile])
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
