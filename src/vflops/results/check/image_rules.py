"""The rule for container images: all jobs of a run are of the same software."""

from __future__ import annotations

from vflops.record.formats.node import ContainerImage, node_file
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.text import printable
from vflops.units import count

_SHOWN = 12
"""The number of characters of a digest that the evidence shows."""


def check_images(contents: Contents) -> Outcome:
    """Fail if nodes ran in different images; name the image, with the digest of its contents."""
    jobs = (*contents.training_jobs, *contents.workers)
    images: dict[ContainerImage | None, str] = {}
    nodes = 0
    for folder in (folder for job in jobs for folder in job.folders):
        for node in contents.nodes_of(folder):
            images.setdefault(node.image, str(node_file(folder, node.node)))
            nodes += 1
    if not any(images):
        return Outcome("not applicable", "the site starts no containers")
    if len(images) > 1:
        texts = " and ".join(_text(image) for image in [*images][:2])
        return Outcome(
            "fail", f"not all nodes ran in the same image: {texts}", [*images.values()][1]
        )
    ((image, where),) = images.items()
    if image is None or image.sha256 is None:
        return Outcome("cannot tell", f"{_text(image)}: its contents are not known", where)
    return Outcome("pass", f"{count(nodes, 'start')} of a node in {_text(image)}")


def _text(image: ContainerImage | None) -> str:
    if image is None:
        return "no container"
    digest = "" if image.sha256 is None else f", contents sha256 {image.sha256[:_SHOWN]}"
    return f"{printable(image.image)} ({printable(image.runtime)}{digest})"
