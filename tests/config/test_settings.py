"""Settings: a file and ``--set`` change them; errors name the setting and a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.config.bagging import BaggingSettings
from vflops.config.profiles import PROFILES, for_single_workload, for_suite, tiny
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.workloads.contract.run_settings import load, profile


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_whole_configuration_of_its_name(name: str) -> None:
    assert profile(name).profile == name


def test_set_wins_over_the_file_and_the_file_over_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('seed = 7\n[micro]\nbudget_s = 11\nbenchmarks = ["gemm", "memory"]\n')
    settings = load(tiny(), file, ["micro.budget_s=3.5", "micro.precisions=fp32,bf16"])
    assert settings.seed == 7
    assert settings.micro.benchmarks == ("gemm", "memory")
    assert settings.micro.budget_s == 3.5
    assert settings.micro.precisions == ("fp32", "bf16")
    assert settings.count == tiny().count


def test_one_name_where_several_may_stand() -> None:
    assert load(tiny(), None, ["micro.precisions=fp32"]).micro.precisions == ("fp32",)


@pytest.mark.parametrize(
    ("assignment", "message", "hint"),
    [
        ("micro.buget_s=3", "unknown setting 'micro.buget_s'", "micro.budget_s"),
        ("mirco.budget_s=3", "unknown setting 'mirco'", "micro"),
        ("micro.budget_s=-3", "micro.budget_s = -3", "the profile's 5.0"),
        ("micro.budget_s=soon", "micro.budget_s = 'soon'", "the profile's 5.0"),
        ("micro.precisions=fp31", "unknown precision 'fp31'", "fp32"),
        ("micro.benchmarks=gem,memory", "unknown benchmark 'gem'", "gemm"),
        ("micro=3", "expected a section", "micro.<key>"),
        ("seed.x=3", "expected a single value", "leave it out for 1"),
        ("seed", "has no '='", "--set micro.budget_s=20"),
        ("count.batch=0", "count.batch = 0", "the profile's 32"),
    ],
)
def test_a_wrong_setting_is_one_line_with_a_hint(assignment: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tiny(), None, [assignment])
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = ", "is not TOML"),
        ("[micro]\nspeed = 1", "unknown setting 'micro.speed' in"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(tiny(), file, [])
    assert message in caught.value.message
    assert "mine.toml" in caught.value.message
    assert caught.value.hint


def test_more_ranks_than_samples_in_a_batch_are_told_how_many_fit() -> None:
    base = profile("tiny", ["image-classification"])
    with pytest.raises(
        UsageError, match="use at most 32 ranks, or a batch that is a multiple of 999"
    ):
        load(base, None, ["train.ranks=999"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none.toml"):
        load(tiny(), tmp_path / "none.toml", [])


def test_unknown_profile_suggests_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        profile("labtop")
    assert "laptop" in str(caught.value.hint)


def test_a_workload_may_have_its_own_number_of_models() -> None:
    both = ["image-classification", "extreme-weather"]
    given = ["bagging.models=4", "image-classification.models=2"]
    settings = load(profile("tiny", both), None, given)
    assert [settings.models_of(name) for name in both] == [2, 4]


def test_the_suite_of_a_laptop_shows_an_ensemble_where_two_cores_are() -> None:
    laptop, name = profile("laptop", ["image-classification", "extreme-weather"]), "extreme-weather"
    chosen = for_suite(laptop, cpus=2)
    assert (chosen.models_of("image-classification"), chosen.models_of(name)) == (2, 1)
    assert for_suite(profile("gpu", [name]), cpus=2).models_of(name) == 1
    assert for_suite(laptop, cpus=1) == laptop


def test_the_suite_searches_for_a_shorter_time() -> None:
    alone = profile("gpu", ["automl", "extreme-weather"])
    chosen = for_suite(alone, cpus=16)
    assert chosen.workloads["automl"]["search"]["duration_s"] == 75
    assert alone.workloads["automl"]["search"]["duration_s"] == 300
    assert chosen.workloads["extreme-weather"] == alone.workloads["extreme-weather"]
    given = load(chosen, None, ["automl.search.duration_s=120"])
    assert given.workloads["automl"]["search"]["duration_s"] == 120
    laptop = profile("laptop", ["automl"])
    assert for_suite(laptop, cpus=1).workloads["automl"]["search"]["duration_s"] == 20
    assert laptop.workloads["automl"]["search"]["duration_s"] == 30


def test_a_key_without_its_section_is_refused_with_its_full_name() -> None:
    with pytest.raises(UsageError, match="unknown setting 'epochs'") as error:
        load(profile("tiny", ["image-classification"]), None, ["epochs=3"])
    assert error.value.hint == "its full name is train.epochs, for example --set train.epochs=8"


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [("train.epochs=abc", "expected an integer"), ("train.momentum=much", "expected a number")],
)
def test_a_value_of_another_type_is_refused_in_plain_words(assignment: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"(?m){expected}$"):
        load(profile("tiny", ["image-classification"]), None, [assignment])


@pytest.mark.parametrize(("given", "hint"), [("75", "75 % is --set target=0.75"), ("1", "90 % is")])
def test_a_target_in_percent_is_refused_with_the_fraction(given: str, hint: str) -> None:
    with pytest.raises(UsageError, match="the quality lies between 0 and 1") as caught:
        load(profile("tiny", ["image-classification"]), None, [f"target={given}"])
    assert str(caught.value.hint).startswith(hint)


def test_the_hint_of_a_wrong_value_is_that_of_the_profile() -> None:
    base = profile("tiny", ["image-classification"])
    with pytest.raises(UsageError) as caught:
        load(base, None, ["train.epochs=abc"])
    epochs = base.workloads["image-classification"]["train"]["epochs"]
    assert epochs != TrainSettings.model_fields["epochs"].default
    assert caught.value.hint == f"leave it out for the profile's {epochs}"


def test_precisions_are_those_of_the_workload_whatever_else_of_the_ceilings_is_set() -> None:
    base = profile("tiny", ["image-classification"])
    usual = for_single_workload(base).micro
    assert len(usual.precisions) < len(base.micro.precisions)
    changed = for_single_workload(load(base, None, ["micro.benchmarks=[]"])).micro
    assert (changed.benchmarks, changed.precisions) == ((), usual.precisions)
    asked = for_single_workload(load(base, None, ['micro.precisions=["fp64"]'])).micro
    assert asked.precisions == ("fp64",)
    quick = for_single_workload(load(base, None, ["micro.budget_s=2"])).micro
    assert quick == usual.model_copy(update={"budget_s": 2.0})  # no more ceilings than otherwise


def test_a_short_name_is_understood_behind_that_of_a_workload() -> None:
    suite = for_suite(profile("tiny", ["image-classification", "automl"]), cpus=2)
    given = ["train.ranks=2", "image-classification.parallel.mode=sharded"]
    modes = {
        name: section["train"]["parallel"]["mode"]
        for name, section in load(suite, None, given).workloads.items()
    }
    assert modes == {"image-classification": "sharded", "automl": "data"}
    with pytest.raises(UsageError) as caught:
        load(suite, None, ["image-classification.parallel.mod=sharded"])
    assert "image-classification.parallel.mode" in str(caught.value.hint)


def test_what_one_workload_refuses_can_be_set_for_another() -> None:
    suite = for_suite(profile("tiny", ["image-classification", "automl"]), cpus=2)
    with pytest.raises(UsageError, match=r"use parallel\.mode data") as caught:
        load(suite, None, ["train.ranks=2", "parallel.mode=sharded"])
    hint = "--set image-classification.parallel.mode=sharded"
    assert hint in str(caught.value.hint)
    load(suite, None, ["train.ranks=2", hint.removeprefix("--set ")])
    with pytest.raises(UsageError) as alone:
        load(profile("tiny", ["automl"]), None, ["train.ranks=2", "parallel.mode=sharded"])
    assert alone.value.hint is None


def test_predictions_of_many_models_are_combined_less_often() -> None:
    bagging = BaggingSettings()
    assert [bagging.combine_interval(models, 90) for models in (1, 8, 22, 512)] == [0, 1, 1, 23]
    assert BaggingSettings(combine_every=1).combine_interval(512, 90) == 1
    assert BaggingSettings(combine_every=0).combine_interval(8, 90) == 0
