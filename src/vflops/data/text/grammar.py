"""The choices of the source of synthetic text, with exact probabilities.

    document   DOCUMENT topic segment*
    segment    sentence | copy | brackets | sum
    sentence   subject filler{0,8} verb object [COMMA verb object] PERIOD
    copy       COPY noun{4,span} AGAIN (the same nouns) PERIOD
    brackets   a balanced sequence of brackets of several kinds, nested up to 8 deep
    sum        number PLUS number [PLUS number] EQUALS number

The topic shifts the frequencies of segments, subjects and verbs. A verb has the form that its
subject demands. Repeated nouns, closing brackets and results of sums are determined by what comes
before, often more than four tokens back.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from vflops.data.text.text_recipe import NUMBERS, TextRecipe

DRAW_BITS = 32
"""A choice compares one random number of this many bits with cumulative weights."""
MAX_FILLERS = 8
MAX_DEPTH = 8
MIN_SPAN = 4
SHIFTS = 4
"""Number of classes of verbs and of words before a filler, by which frequencies are shifted."""

SENTENCE, COPIED, BRACKETS, SUM, END = range(5)
"""The choices at the end of a segment."""

_SEGMENT_WEIGHTS = ((10, 2, 2, 2), (4, 6, 2, 2), (4, 2, 8, 2), (4, 2, 2, 8))
"""Weights of sentences, copies, brackets and sums; a topic has one row."""


@dataclass(frozen=True)
class Choice:
    """A distribution with probabilities that are multiples of 2⁻³², so that they are exact."""

    ends: tuple[int, ...]
    """Cumulative weights; the last is 2³²."""
    nats: tuple[float, ...]
    """The information of each outcome, −log p."""

    @classmethod
    def of(cls, weights: Sequence[int]) -> Choice:
        """Return the choice among ``len(weights)`` outcomes with about these proportions."""
        total, whole = sum(weights), 1 << DRAW_BITS
        scaled = [max(weight * whole // total, 1) for weight in weights]
        largest = scaled.index(max(scaled))
        scaled[largest] += whole - sum(scaled)
        ends, end = [], 0
        for weight in scaled:
            end += weight
            ends.append(end)
        return cls(tuple(ends), tuple(-math.log(weight / whole) for weight in scaled))

    def outcome(self, number: int) -> int:
        """Return the outcome that a random number of 32 bits selects."""
        return bisect_right(self.ends, number)

    @property
    def probabilities(self) -> list[float]:
        """The probability of each outcome."""
        whole = 1 << DRAW_BITS
        starts = (0, *self.ends[:-1])
        return [(end - start) / whole for start, end in zip(starts, self.ends, strict=True)]

    @property
    def entropy(self) -> float:
        """The expected information in nats."""
        return math.fsum(p * n for p, n in zip(self.probabilities, self.nats, strict=True))


def _falling(outcomes: int, offset: int) -> Choice:
    """Return Zipf's law: rank r, from 0, has a weight of 1 / (r + offset)."""
    return Choice.of([(1 << 40) // (rank + offset) for rank in range(outcomes)])


def _even(outcomes: int) -> Choice:
    return Choice.of([1] * outcomes)


@dataclass(frozen=True)
class Grammar:
    """All choices of a recipe. Outcomes of words are ranks, which the state shifts to words."""

    topic: Choice
    segment: tuple[Choice, ...]
    """By topic: the next segment, or the end of the document."""
    noun: Choice
    """The rank of a subject or an object."""
    copied_noun: Choice
    filler: Choice
    stem: Choice
    number: Choice
    bracket: Choice
    is_filler: Choice
    """Whether another filler follows (outcome 1), or the verb."""
    has_comma: Choice
    opens: Choice
    """Whether a bracket opens (outcome 1) or closes, if both are possible."""
    third_term: Choice
    span_ends: tuple[Choice, ...]
    """Whether a span ends (outcome 1) after 4, 5 … nouns; all lengths are equally likely."""


@lru_cache(maxsize=8)
def grammar(recipe: TextRecipe) -> Grammar:
    """Return the choices of a recipe."""
    words = recipe.words
    segment = []
    for topic in range(words.topics):
        weights = _SEGMENT_WEIGHTS[topic % len(_SEGMENT_WEIGHTS)]
        others = recipe.segments - 1  # so that the end comes after that many segments on average
        segment.append(Choice.of([*(weight * others for weight in weights), sum(weights)]))
    return Grammar(
        topic=_even(words.topics),
        segment=tuple(segment),
        noun=_falling(words.nouns, 1),
        copied_noun=_falling(words.nouns, 8),
        filler=_falling(words.fillers, 1),
        stem=_falling(words.stems, 1),
        number=_even(NUMBERS),
        bracket=_even(words.brackets),
        is_filler=Choice.of([1, 3]),
        has_comma=Choice.of([2, 1]),
        opens=Choice.of([11, 9]),
        third_term=_even(2),
        span_ends=tuple(Choice.of([recipe.span - n, 1]) for n in range(MIN_SPAN, recipe.span)),
    )
