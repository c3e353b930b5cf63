"""The entropy of synthetic text, computed from its grammar as a Markov chain.

A state of the chain is what the source knows before a token, without the words: how many fillers
there were, how deep brackets are nested, how many nouns are left to repeat. Shifted frequencies
have the same entropy, so the words themselves do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.grammar import (
    MAX_DEPTH,
    MAX_FILLERS,
    MIN_SPAN,
    Choice,
    Grammar,
    grammar,
)
from vflops.data.text.text_recipe import BLOCK_TOKENS, TextRecipe

State = tuple[Hashable, ...]
_START: State = ("document",)


@lru_cache(maxsize=8)
def entropy_rate(recipe: TextRecipe) -> float:
    """Return the expected information per token in nats, given the state of the source.

    It is exact for blocks: with the stationary rate r of the chain and its potential v, which
    solves (1 − P) v = h − r, the n tokens of a block have r n + v(first state) nats, up to the
    memory of the chain of its first state, which is lost long before the end.
    """
    entropies, step = _matrix(recipe)
    states = len(entropies)
    # The stationary distribution and the potential solve the same system, transposed or not.
    system = np.eye(states) - step + 1.0 / states
    stationary = np.linalg.solve(system.T, np.full(states, 1.0 / states))
    rate = float(stationary @ entropies)
    potential = np.linalg.solve(system, entropies - rate)
    potential -= stationary @ potential
    # The first token of a block is certain; the chain begins with the second.
    nats = rate * (BLOCK_TOKENS - 1) + float(potential[0])
    return nats / BLOCK_TOKENS


def expected_nats(recipe: TextRecipe, tokens: int) -> float:
    """Return the expected information of the first tokens of a block, one step at a time."""
    entropies, step = _matrix(recipe)
    probabilities = np.zeros(len(entropies))
    probabilities[0] = 1.0
    total = 0.0
    for _ in range(tokens - 1):  # the first token is certain
        total += float(probabilities @ entropies)
        probabilities = probabilities @ step
    return total


def _matrix(recipe: TextRecipe) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the entropy of the token after each state, and the matrix of transitions."""
    entropies, transitions = _chain(recipe)
    step = np.zeros((len(entropies), len(entropies)))
    for source, targets in enumerate(transitions):
        for target, probability in targets.items():
            step[source, target] = probability
    return np.array(entropies), step


def _chain(recipe: TextRecipe) -> tuple[list[float], list[dict[int, float]]]:
    """Return the entropy of the token after each state, and the probabilities of next states."""
    choices = grammar(recipe)
    numbers: dict[State, int] = {_START: 0}
    waiting, entropies, transitions = [_START], [], []
    for state in waiting:  # grows while new states are found
        entropy, targets = _leave(state, recipe, choices)
        row: dict[int, float] = {}
        for target, probability in targets:
            if target not in numbers:
                numbers[target] = len(numbers)
                waiting.append(target)
            row[numbers[target]] = row.get(numbers[target], 0.0) + probability
        entropies.append(entropy)
        transitions.append(row)
    return entropies, transitions


Targets = list[tuple[State, float]]


def _leave(state: State, recipe: TextRecipe, choices: Grammar) -> tuple[float, Targets]:
    """Return the entropy of the next token after ``state``, and the states that may follow."""
    match state:
        case ("document",):
            topics = choices.topic.probabilities
            return choices.topic.entropy, [(("segment", t), p) for t, p in enumerate(topics)]
        case ("segment", int(topic)):
            return _begin_segment(topic, choices)
        case ("fillers", int(number), int(topic)):
            if number == MAX_FILLERS:
                return choices.stem.entropy, [(("verb", 0, topic), 1.0)]
            targets: Targets = [
                (("verb", 0, topic), choices.is_filler.probabilities[0]),
                (("fillers", number + 1, topic), choices.is_filler.probabilities[1]),
            ]
            return _mixed(choices.is_filler, [choices.stem, choices.filler]), targets
        case ("verb", clause, topic):
            return choices.noun.entropy, [(("object", clause, topic), 1.0)]
        case ("object", 0, topic):
            without, with_comma = choices.has_comma.probabilities
            return choices.has_comma.entropy, [
                (("segment", topic), without),
                (("comma", topic), with_comma),
            ]
        case ("comma", topic):
            return choices.stem.entropy, [(("verb", 1, topic), 1.0)]
        case ("object", 1, topic):
            return 0.0, [(("segment", topic), 1.0)]
        case ("span", int(nouns), topic):
            return _continue_span(nouns, topic, recipe, choices)
        case ("repeat", 0, topic):
            return 0.0, [(("segment", topic), 1.0)]
        case ("repeat", int(left), topic):
            return 0.0, [(("repeat", left - 1, topic), 1.0)]
        case ("brackets", int(depth), topic):
            return _continue_brackets(depth, topic, choices)
        case ("term", int(terms), topic):
            return _continue_sum(terms, topic, choices)
        case ("plus", int(terms), topic):
            return choices.number.entropy, [(("term", terms + 1, topic), 1.0)]
        case ("equals", topic):
            return 0.0, [(("segment", topic), 1.0)]
    raise ValueError(f"no state {state}")


def _mixed(choice: Choice, outcomes: list[Choice | None]) -> float:
    """Return the entropy of a choice, and of the choice that each outcome leads to, if any."""
    inner = zip(choice.probabilities, outcomes, strict=True)
    return choice.entropy + math.fsum(p * o.entropy for p, o in inner if o is not None)


def _begin_segment(topic: int, choices: Grammar) -> tuple[float, Targets]:
    segment = choices.segment[topic]
    firsts = [choices.noun, None, choices.bracket, choices.number, None]
    states: list[State] = [
        ("fillers", 0, topic),
        ("span", 0, topic),
        ("brackets", 1, topic),
        ("term", 1, topic),
        _START,
    ]
    return _mixed(segment, firsts), list(zip(states, segment.probabilities, strict=True))


def _continue_span(
    nouns: int, topic: Hashable, recipe: TextRecipe, choices: Grammar
) -> tuple[float, Targets]:
    if nouns == recipe.span:
        return 0.0, [(("repeat", nouns, topic), 1.0)]
    if nouns < MIN_SPAN:
        return choices.copied_noun.entropy, [(("span", nouns + 1, topic), 1.0)]
    ends = choices.span_ends[nouns - MIN_SPAN]
    longer, ended = ends.probabilities
    targets: Targets = [
        (("span", nouns + 1, topic), longer),
        (("repeat", nouns, topic), ended),
    ]
    return _mixed(ends, [choices.copied_noun, None]), targets


def _continue_brackets(depth: int, topic: Hashable, choices: Grammar) -> tuple[float, Targets]:
    closed: State = ("segment", topic) if depth == 1 else ("brackets", depth - 1, topic)
    if depth == MAX_DEPTH:
        return 0.0, [(closed, 1.0)]
    closes, opens = choices.opens.probabilities
    targets: Targets = [(closed, closes), (("brackets", depth + 1, topic), opens)]
    return _mixed(choices.opens, [None, choices.bracket]), targets


def _continue_sum(terms: int, topic: Hashable, choices: Grammar) -> tuple[float, Targets]:
    if terms == 1:
        return 0.0, [(("plus", terms, topic), 1.0)]
    if terms == 3:
        return 0.0, [(("equals", topic), 1.0)]
    equals, plus = choices.third_term.probabilities
    targets: Targets = [(("equals", topic), equals), (("plus", terms, topic), plus)]
    return choices.third_term.entropy, targets
