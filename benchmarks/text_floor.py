"""How hard the synthetic text is: losses of n-gram models, and the floor of the source.

    python -m benchmarks.text_floor [--vocabulary 64 256 4096] [--train 4000000] [--val 400000]

The n-gram models are trained on the training split and evaluated on the validation split. Counts
are interpolated with absolute discounting. The discount of each order, and its weight beside the
next lower order, are the best for the validation text, in favour of the model. Good text has a
floor far below the losses of all of them, and shuffled text keeps the loss of the 1-gram.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.text.entropy import entropy_rate
from vflops.data.text.floor import floor_of
from vflops.data.text.packed_text import TokenSplit
from vflops.data.text.synthetic_text import pack
from vflops.data.text.text_recipe import TextRecipe
from vflops.data.text.token_windows import TokenWindows

ORDERS = (1, 2, 3, 5)
CONTEXT = 256
DISCOUNTS = (0.05, 0.2, 0.4, 0.6, 0.75, 0.9, 1.0)
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)

Tokens = NDArray[np.int64]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[64, 256, 4096])
    parser.add_argument("--train", type=int, default=4_000_000)
    parser.add_argument("--val", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    names = ["tokens", "uniform", *(f"{order}-gram" for order in ORDERS), "5-gram, shuffled"]
    print(" | ".join([*names, "floor", "standard error", "entropy rate", "drawn in"]))
    for vocabulary in options.vocabulary:
        recipe = TextRecipe(vocabulary=vocabulary, seed=options.seed)
        print(row(recipe, options.train, options.val), flush=True)


def row(recipe: TextRecipe, train: int, val: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        start_s = time.monotonic()
        text = pack(recipe, Path(folder) / "text", train, val)
        drawn_s = time.monotonic() - start_s
        windows = TokenWindows(text.split("val"), CONTEXT)
        floor = floor_of(windows)
        assert floor is not None
        train_tokens, val_tokens = (stream(text.split(name)) for name in ("train", "val"))
    val_tokens = val_tokens[: windows.predicted + 1]
    losses = ngram_losses(train_tokens, val_tokens, recipe.vocabulary)
    generator = np.random.default_rng(recipe.seed)
    shuffled = ngram_losses(
        generator.permutation(train_tokens), generator.permutation(val_tokens), recipe.vocabulary
    )
    values = [math.log(recipe.vocabulary), *(losses[order] for order in ORDERS), shuffled[5]]
    cells = [f"{recipe.vocabulary:,}", *(f"{value:.3f}" for value in values)]
    cells += [f"{floor.loss:.3f}", f"{floor.standard_error:.4f}", f"{entropy_rate(recipe):.4f}"]
    return " | ".join([*cells, f"{drawn_s:.0f} s"])


def stream(split: TokenSplit) -> Tokens:
    tokens = np.empty(split.tokens, np.int64)
    split.read(0, tokens)
    return tokens


def ngram_losses(train: Tokens, val: Tokens, vocabulary: int) -> dict[int, float]:
    """Return the validation loss of interpolated n-gram models, by order up to the largest."""
    tokens = np.concatenate([train, val])
    in_train = np.arange(len(tokens)) < len(train)
    predicted = np.arange(len(train) + 1, len(tokens))  # as for windows, not the first token
    losses = {}
    lower = np.full(len(predicted), 1.0 / vocabulary)
    context = np.zeros(len(tokens), np.int64)  # the number of the context before each token
    for order in range(1, max(ORDERS) + 1):
        valid = np.arange(len(tokens)) >= order - 1
        _, gram = np.unique(context * vocabulary + tokens, return_inverse=True)
        counted = in_train & valid
        gram_counts = np.bincount(gram[counted], minlength=gram.max() + 1)
        context_counts = np.bincount(context[counted], minlength=context.max() + 1)
        firsts = np.unique(gram[counted], return_index=True)[1]
        kinds = np.bincount(context[counted][firsts], minlength=context.max() + 1)
        lower = best_discount(
            gram_counts[gram[predicted]],
            context_counts[context[predicted]],
            kinds[context[predicted]],
            lower,
        )
        losses[order] = float(-np.log(lower).mean())
        # The context of the next token is this token's n-gram.
        context = np.concatenate([[gram.max() + 1], gram[:-1]])
    return losses


def best_discount(
    grams: Tokens, contexts: Tokens, kinds: Tokens, lower: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the probabilities of one order, with the discount and weight that fit best."""
    seen = np.maximum(contexts, 1)
    best, least = lower, float(-np.log(lower).mean())
    for discount in DISCOUNTS:
        kept = np.maximum(grams - discount, 0.0) / seen
        whole = np.where(contexts > 0, kept + discount * kinds / seen * lower, lower)
        for weight in WEIGHTS:
            mixed = weight * whole + (1.0 - weight) * lower
            loss = float(-np.log(mixed).mean())
            if loss < least:
                best, least = mixed, loss
    return best


if __name__ == "__main__":
    main()
