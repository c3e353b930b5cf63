"""``vflops data`` for text and tokens."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vflops.cli.train.data.data_lines import (
    default_destination,
    print_destination,
    print_hashes,
    print_lines,
    shards_text,
)
from vflops.text import printable

if TYPE_CHECKING:
    from vflops.data.packing import Policy
    from vflops.data.text.check_text import TextReport
    from vflops.data.text.packed_text import PackedText
    from vflops.data.text.text_folder import TextFormat


def synth(folder: Path, vocabulary: int, train: int, val: int, seed: int) -> None:
    """Write shards of synthetic tokens into ``folder``."""
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.text.bin_shards import BinFolder
    from vflops.data.text.entropy import entropy_rate
    from vflops.data.text.synthetic_text import write_folder
    from vflops.data.text.text_recipe import TextRecipe

    recipe = TextRecipe(vocabulary=vocabulary, seed=seed)
    with Bar("blocks drawn") as bar:
        write_folder(recipe, folder, train, val, bar.show)
    written = {
        name: sum(shard.tokens for shard in shards)
        for name, shards in BinFolder.open(folder).splits.items()
    }
    print(
        f"{shell_path(folder)}: {written['train']:,} tokens for training, {written['val']:,} for "
        "validation"
    )
    print(f"best possible loss  {entropy_rate(recipe):.4f} nats per token on average")
    next_step(f"vflops data check {shell_path(folder)}", "check that it is complete and readable")


def check(
    source: Path,
    content: str,
    json: bool,
    workers: int | None,
    separator: str | None,
    field: str | None,
    vocabulary: int | None,
) -> None:
    """Read all text or all tokens and print all faults."""
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.text.bin_shards import BinFolder, DamagedShard
    from vflops.data.text.check_text import check_shards, check_text
    from vflops.data.text.text_folder import TextFolder
    from vflops.errors import CheckFailed

    if content == "tokens":
        try:
            shards = BinFolder.open(source, vocabulary)
        except DamagedShard as error:
            raise CheckFailed(error.message, hint=error.hint) from error
        with Bar("tokens checked", quiet=json) as bar:
            report = check_shards(shards, workers=workers, on_progress=bar.show)
    else:
        folder = TextFolder.open(source)
        format = _format(separator, field)
        with Bar("files checked", quiet=json) as bar:
            report = check_text(folder, format, workers=workers, on_progress=bar.show)
    if json:
        typer.echo(report.to_json(), nl=False)
    else:
        _show_report(report)
    options = {"--separator": separator, "--field": field, "--vocabulary": vocabulary}
    given = [word for item in options.items() if item[1] is not None for word in map(str, item)]
    pack_it = " ".join([f"vflops data pack {shell_path(source)}", *map(shlex.quote, given)])
    if not report.ok:
        suffices = bool(report.unusable) and len(report.problems) == 1
        raise CheckFailed(
            f"{shell_path(source)} is not ok: {'; '.join(report.problems)}",
            hint="fix what is listed above" + (f", or {pack_it} --policy skip" if suffices else ""),
        )
    if not json:
        print("no errors")
        next_step(pack_it, "pack it for fast reading")


def pack(
    source: Path,
    content: str,
    destination: Path | None,
    tokenizer: str | None,
    validation: float | None,
    separator: str | None,
    field: str | None,
    vocabulary: int | None,
    policy: Policy,
    workers: int | None,
) -> None:
    """Tokenize text, or copy shards of tokens, into a packed folder."""
    from vflops.cli.terminal.console import next_step
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.text.bin_shards import BinFolder
    from vflops.data.text.document_split import VALIDATION_SHARE
    from vflops.data.text.index_shards import pack_shards
    from vflops.data.text.pack_text import TextPacking
    from vflops.data.text.pack_text import pack as pack_text
    from vflops.data.text.text_folder import TextFolder
    from vflops.data.text.token_index import stored_type
    from vflops.data.text.tokenizer import BYTES, TextTokenizer

    if content == "tokens":
        shards = BinFolder.open(source, vocabulary)
        target = destination or default_destination(source, "tokens")
        needed = sum(shard.path.stat().st_size for _, _, shard in shards.shards)
        print_destination(target, needed)
        with Bar("blocks packed") as bar:
            packed = pack_shards(shards, target, copy=True, workers=workers, on_progress=bar.show)
    else:
        folder = TextFolder.open(source)
        opened = TextTokenizer.open(tokenizer or BYTES)
        packing = TextPacking(
            opened,
            VALIDATION_SHARE if validation is None else validation,
            _format(separator, field),
        )
        target = destination or default_destination(source, opened.description.name)
        # A token of a file's vocabulary stands for about four bytes of text.
        tokens = folder.size_bytes // (1 if opened.file is None else 4)
        print_destination(target, tokens * stored_type(opened.token_type).itemsize)
        with Bar("files packed") as bar:
            packed = pack_text(
                folder, target, packing, workers=workers, policy=policy, on_progress=bar.show
            )
    _show_packed(packed)
    next_step(*training_command(packed, target))


def training_command(text: PackedText, folder: Path) -> tuple[str, str]:
    """Return the next command after packing text into ``folder``, and what it does."""
    from vflops.cli.terminal.console import shell_path
    from vflops.workloads.language_model.first_target import first_target

    target = first_target(text)
    command = f"vflops run language-model --data {shell_path(folder)} --set target={target:g}"
    return command, (
        f"train until a token has a probability of {target:g}, a loss of {-math.log(target):.2f}; "
        "its frequency alone gives it that, so raise the target to train further"
    )


def _format(separator: str | None, field: str | None) -> TextFormat:
    from vflops.data.text.text_folder import TextFormat
    from vflops.errors import UsageError

    if separator is not None:
        # A shell passes \n as two characters.
        separator = separator.replace("\\n", "\n").replace("\\t", "\t")
        if not separator:
            raise UsageError("--separator is empty", hint="omit it if a file is one document")
    return TextFormat(separator, field or "text")


def _show_packed(packed: PackedText) -> None:
    from vflops.units import count

    index = packed.index
    print(f"vocabulary  {index.vocabulary:,} tokens of {index.tokenizer.name}")
    for name, split in index.splits.items():
        size = sum(shard.bytes for shard in split.shards)
        shards = shards_text(len(split.shards), size)
        documents = count(split.documents, "document")
        left_out = f", {len(split.skipped):,} left out" if split.skipped else ""
        longest = packed.split(name).longest_document
        length = f", the longest of {longest:,} tokens," if longest is not None else ""
        print(f"{name:5}  {split.tokens:,} tokens of {documents}{length} in {shards}{left_out}")
        print_lines([f"{skipped.file}: {skipped.reason}" for skipped in split.skipped])
    print_hashes(packed)


def _show_report(report: TextReport) -> None:
    from vflops.cli.terminal.columns import columns

    rows = [("", "documents", report.unit, f"{report.unit} per document")]
    for name, split in report.splits.items():
        length = split.length
        lengths = f"{length.min:,} – {length.median:,} – {length.max:,}" if length else "—"
        rows.append((name, f"{split.documents:,}", f"{split.size:,}", lengths))
    print(columns(rows, right=(1, 2)))
    print("lengths of documents: shortest – median – longest")
    if report.vocabulary is not None:
        print(f"largest token  {report.largest_token}; vocabulary  {report.vocabulary:,}")
    for note in report.notes:
        print(f"note: {printable(note)}")
    print_lines([f"{bad.file}: {bad.reason}" for bad in report.unusable])
    print_lines([f"{leak.sample}: the same tokens as {leak.same_as}" for leak in report.leaks])
