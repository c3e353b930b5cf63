"""``vflops plan`` and ``vflops run`` with the same options: the same run, or the same refusal."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.support.data_images import image_folder
from tests.support.stopped_runs import BEGINS, Command, stopped_runs

IMAGES = "image-classification"
DRAWN = 200
"""How many combinations of options are compared."""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in this process, up to the point where a run would begin."""
    return stopped_runs(tmp_path, monkeypatch)


CHOICES: list[list[tuple[str, ...]]] = [
    [(), (), ("--data", "images"), ("--data", "nowhere")],
    [(), ("--set", "target=0.5"), ("--set", "target=1.5")],
    [(), ("--models", "1"), ("--models", "2"), ("--models", "300"), ("--models", "0")],
    [(), ("--ranks", "1"), ("--ranks", "2"), ("--ranks", "3"), ("--ranks", "999")],
    [(), (), ("--scale", "2"), ("--scale", "5000")],
    [(), (), (), ("--workers", "1"), ("--workers", "400")],
    [(), (), (), ("--for", "9s"), ("--for", "soon")],
    [(), (), ("--waves",)],
    [(), (), ("--twins",)],
    [(), (), ("--repeat", "2"), ("--repeat", "0")],
    [(), (), ("--kernels",)],
    [(), ("--seed", "7")],
    [(), (), ("--config", "my file.toml"), ("--config", "none.toml"), ("--config", "bad.toml")],
    [(), (), ("--nodes", "2")],
    [(), (), (), ("--rehearse",)],
    [(), (), (), ("--container", "here.sif")],
    [(), (), ("--set", "train.batch=64"), ("--set", "train.batch=100000")],
    [(), (), ("--set", "train.precision=mixed-bf16"), ("--set", "train.precision=tf32")],
    [(), (), ("--set", "parallel.mode=sharded"), ("--set", "train.epoch=3")],
    [(), (), ("--framework", "jax"), ("--framework", "torch")],
    [(), (), ("--set", "count.models=resnet50"), ("--set", "micro.device=hpu")],
]
"""Values of each option; the empty ones leave it out."""


def drawn(seed: int) -> tuple[str, ...]:
    """Return options of which most are left out, so that one fault seldom hides another."""
    rng = random.Random(seed)
    workload = rng.choice([IMAGES, IMAGES, "automl", "language-model"])
    chosen = [rng.choice(choice) if rng.random() < 0.22 else () for choice in CHOICES]
    return (workload, "--profile", "tiny", *(word for words in chosen for word in words))


def write_inputs(folder: Path) -> None:
    """Write what the drawn options name."""
    image_folder(folder / "images", train=24, val=4)
    (folder / "my file.toml").write_text("[train]\nepochs = 2\nwarmup_epochs = 0\n")
    (folder / "bad.toml").write_text("[train\n")


@pytest.mark.parametrize("part", range(4))
def test_plan_and_run_agree_on_drawn_options(command: Command, tmp_path: Path, part: int) -> None:
    write_inputs(tmp_path)
    accepted = refused = 0
    for seed in range(part, DRAWN, 4):
        options = drawn(seed)
        run = command("run", *options)
        plan = command("plan", *options)
        assert run.code in (2, BEGINS), (options, run)
        if run.code == 2:
            assert (plan.code, plan.error) == (2, run.error), options
            refused += 1
            continue
        assert plan.code == 0, (options, plan.error)
        again = command(*plan.next)
        assert (again.code, again.settings) == (BEGINS, run.settings), (options, plan.next)
        accepted += 1
    print(f"{accepted} runs planned and started by the suggested command, {refused} refusals")
    assert accepted >= 5
    assert refused >= 5


def test_the_layout_of_a_plan_is_that_of_the_run(command: Command) -> None:
    for seed in range(400, 440):
        options = drawn(seed)
        run = command("run", *options)
        if run.settings is None:
            continue
        placements = json.loads(command("plan", *options, "--json").out)["placements"]
        (section,) = run.settings.workloads.values()
        sizes = {sum(len(slots) for _, slots in item["places"]) for item in placements}
        assert sizes == {section["train"]["ranks"]}
        number = section.get("search", {}).get("workers") or run.settings.models_of(options[0])
        assert len(placements) == number
