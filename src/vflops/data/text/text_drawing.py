"""Synthetic text drawn from a seed, with the information of every token.

``draw_block`` is a pure function of (recipe, split, block): any block can be drawn alone. Random
numbers are the words of Philox, and choices are integer comparisons, so the tokens are the same on
every machine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.grammar import (
    BRACKETS,
    COPIED,
    MAX_DEPTH,
    MAX_FILLERS,
    MIN_SPAN,
    SENTENCE,
    SHIFTS,
    SUM,
    Choice,
    grammar,
)
from vflops.data.text.text_recipe import (
    AGAIN,
    BLOCK_TOKENS,
    COMMA,
    COPY,
    DOCUMENT,
    EQUALS,
    NUMBERS,
    PERIOD,
    PLUS,
    TextRecipe,
)

SPLITS = ("train", "val")
_SPARE_TOKENS = 1 << 10
"""Room for the segment that a block cuts off; a sentence, a copy or a sum is shorter."""


@dataclass(frozen=True)
class TextBlock:
    """The tokens of a block, and what the source knows of them."""

    tokens: NDArray[np.int64]
    nats: NDArray[np.float64]
    """The information of each token given the state of the source: −log p."""
    starts: NDArray[np.int64]
    """Where documents begin; the first begins with the block, the last may be cut off."""


def draw_block(recipe: TextRecipe, split: str, block: int) -> TextBlock:
    """Return one block of a split, which begins with a document and may cut off the last one."""
    writer = _Writer(recipe, _random_numbers(recipe, split, block))
    writer.fill_block()
    tokens = np.array(writer.tokens[:BLOCK_TOKENS], np.int64)
    nats = np.array(writer.nats[:BLOCK_TOKENS], np.float64)
    return TextBlock(tokens, nats, np.flatnonzero(tokens == DOCUMENT))


def _random_numbers(recipe: TextRecipe, split: str, block: int) -> Iterator[int]:
    """Yield numbers of 32 bits: two per token, the most that a token takes, for all of a block."""
    key: Any = [recipe.seed, (SPLITS.index(split) << 56) | block]
    words = np.random.Philox(key=key).random_raw(BLOCK_TOKENS + _SPARE_TOKENS)
    halves = np.stack((words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)), axis=1)
    return iter(halves.reshape(-1).tolist())


class _Writer:
    """Appends documents, token by token. Lists and plain numbers: numpy is slower here."""

    def __init__(self, recipe: TextRecipe, numbers: Iterator[int]) -> None:
        self.tokens: list[int] = []
        self.nats: list[float] = []
        self._recipe, self._words, self._grammar = recipe, recipe.words, grammar(recipe)
        self._number = numbers.__next__

    def fill_block(self) -> None:
        """Append documents until the block is full."""
        self._add(DOCUMENT, 0.0)  # certain, because every block begins with a document
        while len(self.tokens) < BLOCK_TOKENS:
            self._document()

    def _add(self, token: int, nats: float) -> None:
        self.tokens.append(token)
        self.nats.append(nats)

    def _choose(self, choice: Choice) -> tuple[int, float]:
        """Return a random outcome and its information."""
        outcome = bisect_right(choice.ends, self._number())
        return outcome, choice.nats[outcome]

    def _document(self) -> None:
        """Append topic and segments of a document, and the token that begins the next one."""
        segments = self._grammar.segment
        topic, nats = self._choose(self._grammar.topic)
        self._add(self._words.first_topic + topic, nats)
        while len(self.tokens) < BLOCK_TOKENS:
            segment, nats = self._choose(segments[topic])
            if segment == SENTENCE:
                self._sentence(topic, nats)
            elif segment == COPIED:
                self._copy(nats)
            elif segment == BRACKETS:
                self._brackets(nats)
            elif segment == SUM:
                self._sum(nats)
            else:
                self._add(DOCUMENT, nats)
                return

    def _sentence(self, topic: int, nats: float) -> None:
        words, choices = self._words, self._grammar
        rank, more = self._choose(choices.noun)
        subject = (rank + topic * words.nouns // words.topics) % words.nouns
        self._add(words.first_noun + subject, nats + more)
        form = subject % words.forms
        shift = form % SHIFTS
        nats = 0.0
        for fillers in range(MAX_FILLERS + 1):
            if fillers == MAX_FILLERS:
                nats = 0.0
                break  # the verb must follow
            is_filler, nats = self._choose(choices.is_filler)
            if not is_filler:
                break
            rank, more = self._choose(choices.filler)
            filler = (rank + shift * words.fillers // SHIFTS) % words.fillers
            self._add(words.first_filler + filler, nats + more)
            shift = filler % SHIFTS
        self._verb_and_object(topic, form, nats)
        comma, nats = self._choose(choices.has_comma)
        if comma:
            self._add(COMMA, nats)
            self._verb_and_object(topic, form, 0.0)
            nats = 0.0
        self._add(PERIOD, nats)

    def _verb_and_object(self, topic: int, form: int, nats: float) -> None:
        words = self._words
        rank, more = self._choose(self._grammar.stem)
        stem = (rank + topic * words.stems // words.topics) % words.stems
        self._add(words.first_verb + stem * words.forms + form, nats + more)
        rank, nats = self._choose(self._grammar.noun)
        noun = (rank + stem % SHIFTS * words.nouns // SHIFTS) % words.nouns
        self._add(words.first_noun + noun, nats)

    def _copy(self, nats: float) -> None:
        first, copied_noun = self._words.first_noun, self._grammar.copied_noun
        self._add(COPY, nats)
        span: list[int] = []
        nats = 0.0
        while True:
            noun, more = self._choose(copied_noun)
            span.append(first + noun)
            self._add(first + noun, nats + more)
            if len(span) < MIN_SPAN:
                continue
            if len(span) == self._recipe.span:
                nats = 0.0
                break  # the span is as long as it can be
            ends, nats = self._choose(self._grammar.span_ends[len(span) - MIN_SPAN])
            if ends:
                break
        self._add(AGAIN, nats)
        self.tokens += [*span, PERIOD]
        self.nats += [0.0] * (len(span) + 1)

    def _brackets(self, nats: float) -> None:
        words, choices = self._words, self._grammar
        kind, more = self._choose(choices.bracket)
        self._add(words.first_open + kind, nats + more)
        stack = [kind]
        while stack and len(self.tokens) < BLOCK_TOKENS:
            opens, nats = False, 0.0
            if len(stack) < MAX_DEPTH:
                outcome, nats = self._choose(choices.opens)
                opens = outcome == 1
            if opens:
                kind, more = self._choose(choices.bracket)
                stack.append(kind)
                self._add(words.first_open + kind, nats + more)
            else:
                self._add(words.first_close + stack.pop(), nats)

    def _sum(self, nats: float) -> None:
        first, choices = self._words.first_number, self._grammar
        total, more = self._choose(choices.number)
        self._add(first + total, nats + more)
        self._add(PLUS, 0.0)
        term, more = self._choose(choices.number)
        total += term
        self._add(first + term, more)
        has_third, nats = self._choose(choices.third_term)
        if has_third:
            self._add(PLUS, nats)
            term, nats = self._choose(choices.number)
            total += term
            self._add(first + term, nats)
            nats = 0.0
        self._add(EQUALS, nats)
        self._add(first + total % NUMBERS, 0.0)
