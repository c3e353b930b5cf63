"""What ``benchmarks/links.py`` measures: trainings on hosts, their links, and what coding takes."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.links_bench import Host, Ranks, hosts, train
from tests.support.links_codec import CODED
from tests.support.links_start import Starter
from tests.support.paths import SUPPORT
from vflops.launch import sizing
from vflops.launch.placement import THIS_MACHINE, NodeResources
from vflops.metrics.traffic import POWERSGD_START
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import Exchanged, JobStarted, Progressed
from vflops.run import jobs as training
from vflops.studies.predict.exchange_time import SHARES
from vflops.workloads.contract.run_settings import load, profile

WORK = (
    "micro.benchmarks=[]",
    "network.width=32",
    "network.blocks=[2,2,2,2]",
    "size=32",
    "resize=32",
    "synthetic.size=32",
    "synthetic.validation=32",
    "train.epochs=1",
    "train.warmup_epochs=0",
    "train.learning_rate=0.01",
    "train.checkpoint_share=0.01",
)
"""A ResNet whose gradients weigh much against its work, as on an accelerator."""
RANK_BATCH = 16
WARM = 3
"""Steps of a training that do not count: buckets are filled otherwise after the first."""
GIGABIT = 1e9
_PROGRAMS = SUPPORT


@dataclass(frozen=True)
class Wires:
    """How the hosts are joined."""

    near_bits: float
    far_bits: float | None = None
    nodes: int = 1

    @property
    def words(self) -> str:
        """For people, and as a key."""
        if self.far_bits is None:
            return f"{self.near_bits / GIGABIT:g} Gb/s"
        near, far = self.near_bits / GIGABIT, self.far_bits / GIGABIT
        return f"{near:g} Gb/s, {far:g} between {self.nodes} nodes"


@dataclass(frozen=True)
class Point:
    """What is trained: one model on all hosts, or a model on each."""

    figure: str
    series: str
    hosts: int
    wires: Wires
    bagging: bool = False
    precision: str = "fp32"
    mode: str = "all-reduce"

    @property
    def settings(self) -> tuple[str, ...]:
        """Of the communication."""
        near = () if self.mode == "all-reduce" else ("communication.near=2",)
        told = (f"communication.mode={self.mode}", f"communication.precision={self.precision}")
        return (*told, *near) if self.hosts > 1 and not self.bagging else ()

    @property
    def warm(self) -> int:
        """Steps that do not count."""
        return WARM + (POWERSGD_START if self.precision == "powersgd" else 0)


@dataclass(frozen=True)
class Turn:
    """One training of a point."""

    steps: int
    step_s: float
    """The median of the steps that count."""
    wire: int
    """Bytes that all hosts sent, from the start to the end."""
    counted: int
    """What the ranks say that they sent."""
    parameters: int
    graph: Path


def measure(point: Point, steps: int, folder: Path, starter: Starter) -> Turn:
    """Train it for ``steps`` steps that count, and those before."""
    with hosts(
        point.hosts,
        rate_bits=point.wires.near_bits,
        nodes=point.wires.nodes,
        far_bits=point.wires.far_bits,
    ) as places:
        return _trained(point, steps + point.warm, places, folder, starter)


def _trained(point: Point, steps: int, places: list[Host], folder: Path, starter: Starter) -> Turn:
    jobs = [[place] for place in places] if point.bagging else [places]
    ranks = len(jobs[0])
    batch = RANK_BATCH * ranks
    sizes = (f"synthetic.train={batch * steps}", f"train.batch={batch}", f"train.ranks={ranks}")
    settings = load(
        profile("laptop", ["image-classification"]),
        None,
        [*WORK, *sizes, *point.settings, f"bagging.models={len(jobs)}"],
    )
    run = RunFolder.create(folder, "image-classification", settings)
    machine = NodeResources(THIS_MACHINE, cores=len(places))  # a host each
    sizing.this_machine = lambda device: machine
    with run.start_attempt(0) as events:
        training.plan(run, events, None, lambda what, done, whole: None)
    before = sum(place.sent_bytes() for place in places)
    started = []
    for number, own in enumerate(jobs, start=1):
        attempt = run.next_attempt(number)
        logs = run.attempt_folder(number, attempt)
        logs.mkdir(parents=True)
        port, core = 29_600 + number, (number - 1) * ranks
        started.append(train(run.path, number, attempt, own, logs, port, core, starter))
    for each in started:
        each.wait()
    wire = sum(place.sent_bytes() for place in places) - before
    history = run.history()
    sent = [event.payload(Exchanged) for event in history.events("exchange")]
    return Turn(
        steps=steps,
        step_s=statistics.fmean(
            step_s(
                [event.payload(Progressed) for event in history.events("progress", job=job)],
                point.warm,
            )
            for job in range(1, len(jobs) + 1)
        ),
        wire=wire,
        counted=sum(each.bytes_near + each.bytes_far for each in sent),
        parameters=history.events("job")[0].payload(JobStarted).parameters or 0,
        graph=run.graph_file("image-classification"),
    )


def step_s(notes: Sequence[Progressed], warm: int) -> float:
    """The median time of training between one note and the next, of steps after ``warm``."""
    known = {note.step: note.phases["training"] for note in notes}
    pairs = itertools.pairwise(sorted(step for step in known if step >= warm))
    return statistics.median((known[last] - known[first]) / (last - first) for first, last in pairs)


@dataclass(frozen=True)
class LinkFigures:
    """Of the way round all hosts."""

    bandwidth: float
    """Bytes a second of one host."""
    latency_s: float


def measure_link(
    wires: Wires, count: int, size: int, precisions: Sequence[str], starter: Starter
) -> dict[str, LinkFigures]:
    """What plain exchanges of the model's gradients reach, with nothing else going on.

    ``size``: their bytes in fp32.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        hosts(
            count, rate_bits=wires.near_bits, nodes=wires.nodes, far_bits=wires.far_bits
        ) as places,
    ):
        file = Path(name, "link.json")
        words = [sys.executable, str(_PROGRAMS / "links_rank.py"), str(size), str(file)]
        store = f"tcp://{places[0].address}:29590"
        Ranks(places, [*words, *precisions], Path(name), store, {}, 0, starter).wait()
        times: dict[str, dict[str, float]] = json.loads(file.read_text())
    return {precision: _figures(precision, own, count, size) for precision, own in times.items()}


def _figures(precision: str, times: Mapping[str, float], count: int, size: int) -> LinkFigures:
    share = SHARES[precision]
    assert share is not None
    sent = 2 * (count - 1) / count * share * size
    latency_s = times["small_s"] / (2 * (count - 1))
    return LinkFigures(sent / (times["large_s"] - times["small_s"]), latency_s)


@dataclass(frozen=True)
class Coding:
    """What compressing takes a host, with nothing sent."""

    coding_s: dict[str, float]
    """Of all gradients, by precision."""
    bucket_bytes: list[int]
    """In the order in which they are filled."""
    powersgd_share: float
    """Of the gradients' bytes, on the wire."""


def measure_coding(count: int, graph: Path, starter: Starter) -> Coding:
    """All hosts at the same time, as they compute when they train; the mean of them."""
    with (
        tempfile.TemporaryDirectory() as name,
        hosts(count, rate_bits=GIGABIT) as places,
    ):
        words = [sys.executable, str(_PROGRAMS / "links_codec.py"), str(graph), str(count), name]
        Ranks(places, words, Path(name), None, {}, 0, starter).wait()
        found = [json.loads(Path(name, f"rank-{rank}.json").read_text()) for rank in range(count)]
    mean = {each: statistics.fmean(own["coding_s"][each] for own in found) for each in CODED}
    return Coding(mean, found[0]["bucket_bytes"], found[0]["powersgd_share"])
