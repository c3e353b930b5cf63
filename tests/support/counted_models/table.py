"""Prints the counting table as Markdown: ``python -m tests.support.counted_models.table``."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

from tests.support.counted_models import FAMILIES
from tests.support.counted_models.definition import CountedModel
from tests.support.counted_models.expected import REFUSED, TRUTH
from tests.support.counted_models.oracle import Pair, counted, flop_counter_mode

EQUAL, TRUE, UNKNOWN = "equal", "FlopCounterMode is wrong", "unexplained"


def rows(family: str) -> Iterator[tuple[str, ...]]:
    """Return name, ``executed``, ``executed-torch``, FlopCounterMode and state of each model."""
    for model in FAMILIES[family]:
        ours = counted(model)
        if ours.error is not None:
            state = "refused: " + REFUSED.get(model.name, str(ours.error.message))
            yield (model.name, "–", "–", "–", state)
            continue
        oracle = flop_counter_mode(model)
        yield (
            model.name,
            *(_cell(pair) for pair in (ours.executed, ours.executed_torch, oracle)),
            _state(model, ours.executed, oracle),
        )


def _state(model: CountedModel, executed: Pair | None, oracle: Pair) -> str:
    if executed == oracle:
        return EQUAL
    return f"{TRUE}: {TRUTH[model.name].reason}" if model.name in TRUTH else UNKNOWN


def _cell(pair: Pair | None) -> str:
    return "–" if pair is None else f"{pair[0]:,} + {pair[1]:,}"


def main() -> None:
    """Print a table per family, and how many models are in each state."""
    warnings.simplefilter("ignore")
    states: Counter[str] = Counter()
    for family in FAMILIES:
        print(f"## {family}\n\n| model | executed | executed-torch | FlopCounterMode | state |")
        print("|---|---|---|---|---|")
        for row in rows(family):
            states[row[-1].split(":")[0]] += 1
            print(f"| {' | '.join(row)} |")
        print()
    print(", ".join(f"{state}: {number}" for state, number in states.most_common()))


if __name__ == "__main__":
    main()
