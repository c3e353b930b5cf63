"""The source of synthetic text, implemented anew from its description, as a slow oracle.

It knows a document by its tokens alone: it parses them and returns the probability of every next
token. It shares the numbering of tokens with the generator, and nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.text_recipe import TextRecipe

Vector = NDArray[np.float64]

DOCUMENT, COPY, AGAIN, PERIOD, COMMA, PLUS, EQUALS = range(7)
MIXTURES = [[10, 2, 2, 2], [4, 6, 2, 2], [4, 2, 8, 2], [4, 2, 2, 8]]


def zipf(count: int, offset: int, shift: int = 0) -> Vector:
    """Return the probabilities of words whose ranks are shifted."""
    weights = 1.0 / (np.arange(count) + offset)
    return np.roll(weights / weights.sum(), shift)


class TextOracle:
    """The probabilities of the next token of a document."""

    def __init__(self, recipe: TextRecipe) -> None:
        self.recipe, self.words = recipe, recipe.words

    def _vector(self, *parts: tuple[int, float | Vector]) -> Vector:
        vector = np.zeros(self.recipe.vocabulary)
        for first, values in parts:
            values = np.atleast_1d(values)
            vector[first : first + len(values)] += values
        return vector

    def next_token(self, document: list[int]) -> Vector:
        """Return the probability of each token after the tokens of a document so far."""
        words = self.words
        if len(document) == 1:
            assert document[0] == DOCUMENT
            return self._vector((words.first_topic, np.full(words.topics, 1 / words.topics)))
        topic, position = document[1] - words.first_topic, 2
        while position < len(document):
            segment = document[position:]
            result = self._segment(topic, segment)
            if not isinstance(result, int):
                return result
            position += result
        return self._boundary(topic)

    def _boundary(self, topic: int) -> Vector:
        words, segments = self.words, self.recipe.segments
        shares = np.array(MIXTURES[topic % 4]) / sum(MIXTURES[topic % 4]) * (1 - 1 / segments)
        return self._vector(
            (DOCUMENT, 1 / segments),
            (words.first_noun, shares[0] * self._subjects(topic)),
            (COPY, shares[1]),
            (words.first_open, shares[2] * np.full(words.brackets, 1 / words.brackets)),
            (words.first_number, shares[3] * np.full(10, 0.1)),
        )

    def _subjects(self, topic: int) -> Vector:
        return zipf(self.words.nouns, 1, topic * self.words.nouns // self.words.topics)

    def _segment(self, topic: int, tokens: list[int]) -> Vector | int:
        """Return what follows an unfinished segment, or the length of a finished one."""
        words, first = self.words, tokens[0]
        if first == COPY:
            return self._copied(tokens)
        if words.first_open <= first < words.first_close:
            return self._brackets(tokens)
        if words.first_number <= first < words.first_verb:
            return self._sum(tokens)
        assert first >= words.first_noun
        return self._sentence(topic, tokens)

    def _copied(self, tokens: list[int]) -> Vector | int:
        words, span = self.words, self.recipe.span
        if AGAIN not in tokens:
            written = len(tokens) - 1
            ends = 0.0 if written < 4 else 1 / (span - written + 1)
            return self._vector(
                (AGAIN, ends), (words.first_noun, (1 - ends) * zipf(words.nouns, 8))
            )
        end = tokens.index(AGAIN)
        copied = [*tokens[1:end], PERIOD]
        repeated = tokens[end + 1 : end + 1 + len(copied)]
        assert repeated == copied[: len(repeated)]
        if len(repeated) == len(copied):
            return end + 1 + len(copied)
        return self._vector((copied[len(repeated)], 1.0))

    def _brackets(self, tokens: list[int]) -> Vector | int:
        words = self.words
        stack: list[int] = []
        for position, token in enumerate(tokens):
            if token < words.first_close:
                stack.append(token - words.first_open)
            else:
                assert token - words.first_close == stack.pop()
            if not stack:
                return position + 1
        opens = 0.0 if len(stack) == 8 else 0.45
        kinds = np.full(words.brackets, 1 / words.brackets)
        return self._vector(
            (words.first_open, opens * kinds), (words.first_close + stack[-1], 1 - opens)
        )

    def _sum(self, tokens: list[int]) -> Vector | int:
        first = self.words.first_number
        if EQUALS in tokens:
            end = tokens.index(EQUALS)
            total = sum(token - first for token in tokens[:end:2]) % 10
            if len(tokens) == end + 1:
                return self._vector((first + total, 1.0))
            assert tokens[end + 1] == first + total
            return end + 2
        if tokens[-1] == PLUS:
            return self._vector((first, np.full(10, 0.1)))
        terms = (len(tokens) + 1) // 2
        more = {1: 1.0, 2: 0.5, 3: 0.0}[terms]
        return self._vector((PLUS, more), (EQUALS, 1 - more))

    def _sentence(self, topic: int, tokens: list[int]) -> Vector | int:
        words = self.words
        if PERIOD in tokens:
            return tokens.index(PERIOD) + 1
        form = (tokens[0] - words.first_noun) % words.forms
        last = tokens[-1]
        verbs = np.zeros((words.stems, words.forms))
        verbs[:, form] = zipf(words.stems, 1, topic * words.stems // words.topics)
        if last == COMMA:
            return self._vector((words.first_verb, verbs.reshape(-1)))
        if words.first_verb <= last < words.first_filler:
            assert (last - words.first_verb) % words.forms == form
            stem = (last - words.first_verb) // words.forms
            objects = zipf(words.nouns, 1, stem % 4 * words.nouns // 4)
            return self._vector((words.first_noun, objects))
        has_verb = any(words.first_verb <= token < words.first_filler for token in tokens)
        if has_verb:
            comma = 0.0 if COMMA in tokens else 1 / 3
            return self._vector((COMMA, comma), (PERIOD, 1 - comma))
        filler = 0.0 if len(tokens) == 9 else 0.75
        shift = form if len(tokens) == 1 else last - words.first_filler
        fillers = zipf(words.fillers, 1, shift % 4 * words.fillers // 4)
        return self._vector(
            (words.first_filler, filler * fillers),
            (words.first_verb, (1 - filler) * verbs.reshape(-1)),
        )
