"""Notes the hash of the package in its list of releases: the last step before ``python -m build``.

python -m tools.note_release   a later change of a file in src/vflops makes the hash wrong
"""

from __future__ import annotations

import json

import vflops
from vflops.record.files import atomic
from vflops.record.installed_package import RELEASES, installed_package


def note_release() -> str:
    """Add this version with its hash to the list; return the hash."""
    sha256 = installed_package().sha256
    if sha256 is None:
        raise SystemExit("the files of the package cannot be read")
    known = json.loads(RELEASES.read_text(encoding="utf-8"))
    if known.get(vflops.__version__, sha256) != sha256:
        raise SystemExit(
            f"{RELEASES} already has {vflops.__version__} with the hash "
            f"{known[vflops.__version__]}: a release is never changed, raise the version"
        )
    atomic.write_text(RELEASES, atomic.json_text(known | {vflops.__version__: sha256}))
    return sha256


if __name__ == "__main__":
    print(f"vflops {vflops.__version__} {note_release()}")
