"""The recipe of synthetic text, and what each token of its vocabulary stands for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vflops.data.synthetic_folder import check_limits
from vflops.errors import FolderError, Hint, format_value

GENERATOR = "vflops.text"
VERSION = 1  # of the tokens: raise it with any change that alters them
BLOCK_TOKENS = 1 << 14
"""Tokens per block: what is drawn, hashed and compared at a time."""

MIN_VOCABULARY = 48
MAX_VOCABULARY = 1 << 20

DOCUMENT, COPY, AGAIN, PERIOD, COMMA, PLUS, EQUALS = range(7)
"""Tokens with one meaning: each document begins with ``DOCUMENT``."""
_FIRST_TOPIC = 7
NUMBERS = 10
"""Sums are taken modulo this number."""


_FACTS = {
    "words of the text": "vocabulary",
    "seed of the text": "seed",
    "segments per document": "segments",
    "longest copy": "span",
}
"""Names of recorded facts, and the fields that they hold."""


@dataclass(frozen=True)
class TextRecipe:
    """What to draw: text of segments that a network can learn to predict, as far as possible."""

    vocabulary: int = 256
    seed: int = 1
    segments: int = 16
    """Mean number of segments per document."""
    span: int = 16
    """The most words that are copied at a time."""

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if the recipe cannot be drawn."""
        limits = (
            ("vocabulary", MIN_VOCABULARY, MAX_VOCABULARY),
            ("seed", 0, 2**63 - 1),
            ("segments", 2, 4096),
            ("span", 4, 256),
        )
        check_limits("synthetic text", self, limits)

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data, with the version of the generator."""
        return {"generator": GENERATOR, "version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, recipe: Mapping[str, Any]) -> TextRecipe:
        """Return the recipe in plain data; raise ``FolderError`` if this version cannot draw it."""
        names = [field.name for field in dataclasses.fields(cls)]
        values = {name: recipe.get(name) for name in names}
        known = (recipe.get("generator"), recipe.get("version")) == (GENERATOR, VERSION)
        if not known or not all(type(value) is int for value in values.values()):
            raise FolderError(
                f"{format_value(recipe)} is not a recipe of synthetic text that this version draws",
                hint=Hint("draw the text again", "vflops data synth language-model DIR"),
            )
        return cls(**values)  # type: ignore[arg-type]  # all are whole numbers

    def facts(self) -> dict[str, int]:
        """Return what a job records, so that the text can be drawn again."""
        return {name: getattr(self, field) for name, field in _FACTS.items()}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> TextRecipe | None:
        """Return the recipe of a text with these recorded facts; None if they are incomplete."""
        values = {field: facts.get(name) for name, field in _FACTS.items()}
        if not all(type(value) is int for value in values.values()):
            return None
        return cls(**values)  # type: ignore[arg-type]  # all are whole numbers

    @cached_property
    def words(self) -> Words:
        """What each token stands for."""
        return Words.of(self.vocabulary)


@dataclass(frozen=True)
class Words:
    """Classes of tokens: the first token of each class, and how many it has."""

    topics: int
    brackets: int
    """Number of kinds of brackets; each has an opening and a closing token."""
    nouns: int
    fillers: int
    stems: int
    forms: int
    """Forms of a verb; the noun that is the subject determines which one is used."""

    @classmethod
    def of(cls, vocabulary: int) -> Words:
        """Return the classes of a vocabulary of this size, all of which it uses."""
        small = vocabulary < 128
        topics, brackets, forms = (4, 3, 3) if small else (8, 4, 4)
        rest = vocabulary - _FIRST_TOPIC - topics - 2 * brackets - NUMBERS
        stems, fillers = rest // 3 // forms, rest // 4
        return cls(topics, brackets, rest - stems * forms - fillers, fillers, stems, forms)

    @property
    def first_topic(self) -> int:
        """The first topic, one of which follows the start of a document."""
        return _FIRST_TOPIC

    @property
    def first_open(self) -> int:
        """The first opening bracket."""
        return self.first_topic + self.topics

    @property
    def first_close(self) -> int:
        """The first closing bracket."""
        return self.first_open + self.brackets

    @property
    def first_number(self) -> int:
        """The number 0."""
        return self.first_close + self.brackets

    @property
    def first_verb(self) -> int:
        """The first form of the first verb; the forms of a verb are next to each other."""
        return self.first_number + NUMBERS

    @property
    def first_filler(self) -> int:
        """The first word that stands between a subject and its verb."""
        return self.first_verb + self.stems * self.forms

    @property
    def first_noun(self) -> int:
        """The first noun."""
        return self.first_filler + self.fillers
