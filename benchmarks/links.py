"""Ranks on hosts of their own behind shaped links: what parallel training costs there.

    python benchmarks/links.py [--out FOLDER] [--steps 24] [--rounds 1] [--only NAME…]

Network namespaces on this machine (root, iproute2), a rank on each, one core a rank. Three
questions: bagging against data parallelism (V3.0's figure 9), what compression saves (V2.0's
figure 4), and hierarchical against flat exchange between two nodes. Each point is trained twice,
with few steps and with more, and only the difference counts: neither start-up nor the first
broadcast of the weights does. Bytes are read from the hosts' interfaces and set beside those that
the ranks counted; times are set beside what `vflops predict` makes of the link's own figures.

Writes FOLDER/links.json and FOLDER/links.html.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from links_bench import Host, Ranks, hosts, lacking, train
from links_page import write_page
from vflops import training
from vflops.config.profiles import profile
from vflops.config.settings import load
from vflops.record.folder import RunFolder
from vflops.record.training import Exchanged, Finished, JobStarted
from vflops.train import placement

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
FEW = 4
"""Steps of the short training of each point."""
GIGABIT = 1e9
LINK_RANK = Path(__file__).parents[1] / "tests" / "links_rank.py"


@dataclass(frozen=True)
class Wires:
    """How the hosts are joined."""

    near_bits: float
    far_bits: float | None = None
    nodes: int = 1

    @property
    def words(self) -> str:
        if self.far_bits is None:
            return f"{self.near_bits / GIGABIT:g} Gb/s"
        near, far = self.near_bits / GIGABIT, self.far_bits / GIGABIT
        return f"{near:g} Gb/s in a node, {far:g} Gb/s between {self.nodes}"


@dataclass(frozen=True)
class Point:
    """What is trained: one model on all hosts, or a model on each."""

    figure: str
    series: str
    hosts: int
    wires: Wires
    bagging: bool = False
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A point's figures."""

    figure: str
    series: str
    hosts: int
    wires: str
    bagging: bool
    step_s: float
    """Of training: the median over the rounds."""
    samples_per_s: float
    """Of all hosts together."""
    parameters: int
    wire_bytes: float
    """That all hosts sent in a step."""
    counted_bytes: float
    """What the ranks say that they sent."""


def points() -> list[Point]:
    """All of them; those of one figure and number of hosts one after the other."""
    slow, fast = Wires(GIGABIT), Wires(10 * GIGABIT)
    found = [Point("bagging", "one host", 1, slow)]
    for count in (2, 4):
        found.append(Point("bagging", "bagging", count, slow, bagging=True))
        found += [
            Point("bagging", f"data parallel, {wires.words}", count, wires)
            for wires in (fast, slow)
        ]
        for precision in ("fp32", "bf16", "fp16", "int8", "powersgd"):
            setting = (f"communication.precision={precision}",)
            found.append(Point("compression", precision, count, slow, settings=setting))
    two = Wires(10 * GIGABIT, GIGABIT, nodes=2)
    for mode in ("all-reduce", "hierarchical", "torus"):
        near = () if mode == "all-reduce" else ("communication.near=2",)
        setting = (f"communication.mode={mode}", *near)
        found.append(Point("modes", mode, 4, two, settings=setting))
    return found


def measure(point: Point, steps: int, folder: Path) -> Measured:
    """Train it briefly and longer; what the steps in between took and sent."""
    with hosts(
        point.hosts,
        rate_bits=point.wires.near_bits,
        nodes=point.wires.nodes,
        far_bits=point.wires.far_bits,
    ) as places:
        short = _trained(point, FEW, places, folder / "short")
        long = _trained(point, steps, places, folder / "long")
    between = steps - FEW
    step_s = (long.seconds - short.seconds) / between
    counted = (long.counted - short.counted) / between
    return Measured(
        figure=point.figure,
        series=point.series,
        hosts=point.hosts,
        wires=point.wires.words,
        bagging=point.bagging,
        step_s=step_s,
        samples_per_s=point.hosts * RANK_BATCH / step_s,
        parameters=long.parameters,
        wire_bytes=(long.wire - short.wire) / between,
        counted_bytes=counted,
    )


@dataclass(frozen=True)
class LinkFigures:
    """Of the way round all hosts."""

    bandwidth: float
    """Bytes a second of one host."""
    latency_s: float


@dataclass(frozen=True)
class _Trained:
    seconds: float
    wire: int
    counted: int
    parameters: int


def _trained(point: Point, steps: int, places: list[Host], folder: Path) -> _Trained:
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
    placement.here = lambda *_: (len(places), False)  # a host each, whatever cores are here
    with run.start_attempt(0) as events:
        training.plan(run, events, None, lambda what, done, whole: None)
    before = sum(place.sent_bytes() for place in places)
    started = []
    for number, own in enumerate(jobs, start=1):
        attempt = run.next_attempt(number)
        logs = run.attempt_folder(number, attempt)
        logs.mkdir(parents=True)
        port, core = 29_600 + number, (number - 1) * ranks
        started.append(train(run.path, number, attempt, own, logs, port, core))
    for each in started:
        each.wait()
    wire = sum(place.sent_bytes() for place in places) - before
    history = run.history()
    ends = [event.payload(Finished) for event in history.events("finished")]
    begun = history.events("job")[0].payload(JobStarted)
    sent = [event.payload(Exchanged) for event in history.events("exchange")]
    counted = sum(each.bytes_near + each.bytes_far for each in sent)
    seconds = statistics.fmean(end.phases["training"] for end in ends)
    return _Trained(seconds, wire, counted, begun.parameters or 0)


def measure_link(wires: Wires, count: int, parameters: int) -> LinkFigures:
    """What a plain all-reduce of the model's gradients reaches, with nothing else going on."""
    with (
        tempfile.TemporaryDirectory() as name,
        hosts(
            count, rate_bits=wires.near_bits, nodes=wires.nodes, far_bits=wires.far_bits
        ) as places,
    ):
        file = Path(name, "link.json")
        words = [sys.executable, str(LINK_RANK), str(4 * parameters), str(file)]
        Ranks(places, words, Path(name), f"tcp://{places[0].address}:29590", {}).wait()
        found = json.loads(file.read_text())
    latency_s = found["small_s"] / (2 * (count - 1))
    share = 2 * (count - 1) / count
    bandwidth = share * 4 * parameters / (found["large_s"] - found["small_s"])
    return LinkFigures(bandwidth, latency_s)


def _median(rounds: Sequence[Measured]) -> Measured:
    ordered = sorted(rounds, key=lambda each: each.step_s)
    return ordered[len(ordered) // 2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("links"))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", action="append", default=[])
    arguments = parser.parse_args()
    if reason := lacking():
        sys.exit(f"error: {reason}")
    wanted = [each for each in points() if not arguments.only or each.figure in arguments.only]
    rounds: dict[Point, list[Measured]] = {each: [] for each in wanted}
    for turn in range(arguments.rounds):
        for number, point in enumerate(wanted):
            folder = arguments.out / "runs" / f"{turn}-{number}"
            found = measure(point, arguments.steps, folder)
            rounds[point].append(found)
            apart = found.wire_bytes / found.counted_bytes - 1 if found.counted_bytes else 0.0
            print(
                f"{point.figure:12} {point.hosts} hosts, {point.wires.words:40} {point.series:28}"
                f" {found.step_s * 1e3:7.0f} ms a step, {found.samples_per_s:6.1f} samples/s, "
                f"{found.wire_bytes / 1e6:7.2f} MB a step ({apart:+.1%} of what was counted)",
                flush=True,
            )
    result = [_median(each) for each in rounds.values()]
    links = {
        f"{hosts}, {wires.words}": asdict(measure_link(wires, hosts, result[0].parameters))
        for hosts, wires in dict.fromkeys((p.hosts, p.wires) for p in wanted if p.hosts > 1)
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    both = {"points": [asdict(each) for each in result], "links": links}
    (arguments.out / "links.json").write_text(json.dumps(both, indent=1))
    page = arguments.out / "links.html"
    write_page(result, links, page)
    print(f"open {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
