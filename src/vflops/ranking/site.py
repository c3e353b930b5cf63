"""``vflops ranking``: folders of submissions → a folder of pages."""

from __future__ import annotations

import gc
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from vflops.errors import RunFailed, UsageError
from vflops.ranking import pages
from vflops.ranking.entry import Entry
from vflops.ranking.judge import judged_by
from vflops.ranking.lists import Apart, Ranked, Ranking, ranking, system_id
from vflops.ranking.read import read
from vflops.ranking.store import Store
from vflops.ranking.submissions import ARCHIVE, Submission, find
from vflops.record import atomic

_CHUNK = 32
"""Submissions that a process takes at once; fewer than this need no other process."""
_MEMORY = 8 << 30
"""Bytes of address space of a process that reads submissions."""
_SYSTEM_PAGE = re.compile("[0-9a-f]{12}[.]html")

_Entries = dict[Submission, tuple[str, Entry]]
"""What was read, with the fingerprint from before it was."""
Progress = Callable[[int, int], None]
"""Told how many submissions were read, of how many."""


@dataclass(frozen=True)
class Built:
    """What a build did."""

    index: Path
    submissions: int
    read: int
    """Those that were new or changed."""
    ranking: Ranking
    written: int
    """Pages that are not as they were."""


def add(archive: Path, folder: Path) -> Path:
    """Copy an archive among the submissions of ``folder``; one of that name is never replaced."""
    if not archive.is_file() or not archive.name.endswith(ARCHIVE):
        raise UsageError(
            f"{archive} is no archive of a run", cure=f"give a {ARCHIVE} of vflops archive"
        )
    target = folder / archive.name
    if target.exists() and target.read_bytes() != archive.read_bytes():
        raise UsageError(f"{target} is another submission", cure="give the archive another name")
    if not target.exists():
        atomic.make_folder(folder)
        try:
            shutil.copyfile(archive, target)
        except OSError as error:
            raise atomic.cannot_write(target, error) from error
    return target


def build(
    folders: Sequence[Path],
    site: Path,
    *,
    signers: Path | None = None,
    progress: Progress = lambda done, of: None,
) -> Built:
    """Read what is new or changed, rank all, and write the pages that are not as they were."""
    entries_folder = site / ".entries"
    if site.is_file() or (site.exists() and not entries_folder.is_dir() and any(site.iterdir())):
        raise UsageError(
            f"{site} holds something else than a ranking", cure="name a new or an empty folder"
        )
    store = Store(entries_folder, judged_by(signers))
    submissions = find(folders, site)
    # Where nothing is kept, the processes that read take the fingerprints as well.
    keys = {each: store.key(each.fingerprint()) for each in submissions} if store else {}
    kept = {each: entry for each, key in keys.items() if (entry := store.get(key)) is not None}
    new = [each for each in submissions if each not in kept]
    for entries in _read_all(new, signers):
        made = {each: store.key(fingerprint) for each, (fingerprint, _) in entries.items()}
        store.add({made[each]: entry for each, (_, entry) in entries.items()})
        keys |= made
        kept |= {each: entry for each, (_, entry) in entries.items()}
        progress(len(kept), len(submissions))
    store.keep_only(set(keys.values()))
    found = ranking([kept[each] for each in submissions])
    written = _write(found, site)
    return Built(site / "index.html", len(submissions), len(new), found, written)


def _read_all(new: Sequence[Submission], signers: Path | None) -> Iterator[_Entries]:
    """The entries of what is new, in chunks; many are shared out among processes."""
    chunks = [new[start : start + _CHUNK] for start in range(0, len(new), _CHUNK)]
    if len(chunks) < 2:
        for chunk in chunks:
            yield _read_chunk(chunk, signers)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    pool = ProcessPoolExecutor(
        min(cores, len(chunks)), mp_context=get_context("spawn"), initializer=_begin
    )
    try:
        with pool:
            for future in [pool.submit(_read_chunk, chunk, signers) for chunk in chunks]:
                yield future.result()
    except BrokenProcessPool as error:
        raise RunFailed(
            "a process that read submissions was killed, perhaps for its memory",
            cure="what was read is kept: run the command again, with fewer folders at once",
        ) from error


def _read_chunk(chunk: Sequence[Submission], signers: Path | None) -> _Entries:
    return {each: (each.fingerprint(), read(each, signers)) for each in chunk}


def _begin() -> None:
    """A process that reads: little time for garbage, and an end to how much memory it may take."""
    gc.set_threshold(100_000)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _write(found: Ranking, site: Path) -> int:
    systems = site / "systems"
    atomic.make_folder(systems)
    ranked: dict[str, list[Ranked]] = {}
    apart: dict[str, list[Apart]] = {}
    for each in found.ranked:
        ranked.setdefault(system_id(each.entry), []).append(each)
    for other in found.apart:
        if other.entry.system:
            apart.setdefault(system_id(other.entry), []).append(other)
    names = {*ranked, *apart}
    written = int(_put(site / "index.html", pages.index_page(found)))
    for name in sorted(names):
        page = pages.system_page(ranked.get(name, []), apart.get(name, []))
        written += _put(systems / f"{name}.html", page)
    for path in systems.iterdir():
        if _SYSTEM_PAGE.fullmatch(path.name) and path.stem not in names:
            path.unlink()
    return written


def _put(path: Path, page: str) -> bool:
    """Write a page that is not as it was: whole, but not synced, since it can be rebuilt."""
    data = page.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise atomic.cannot_write(path, error) from error
    return True
