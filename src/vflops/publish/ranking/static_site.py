"""``vflops ranking``: folders of submissions → a folder of pages."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vflops.errors import UsageError
from vflops.publish.ranking import ranking_pages
from vflops.publish.ranking.entry_store import Store
from vflops.publish.ranking.judge import judged_by
from vflops.publish.ranking.lists import Apart, Ranked, Ranking, ranking, system_id
from vflops.publish.ranking.reader_processes import read_all
from vflops.publish.ranking.submission_folders import ARCHIVE, find
from vflops.record.files import atomic

_SYSTEM_PAGE = re.compile("[0-9a-f]{12}[.]html")

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
    skipped: tuple[Path, ...] = ()
    """Files among the submissions that are none."""


def add(archive: Path, folder: Path) -> bool:
    """Copy an archive among the submissions of ``folder``; False where it is there already.

    Another one of that name is never replaced.
    """
    if not archive.is_file() or not archive.name.endswith(ARCHIVE):
        raise UsageError(
            f"{archive} is no archive of a run", hint=f"give a {ARCHIVE} of vflops archive"
        )
    target = folder / archive.name
    if target.exists() and not filecmp.cmp(target, archive, shallow=False):
        raise UsageError(f"{target} is another submission", hint="give the archive another name")
    if target.exists():
        return False
    atomic.make_folder(folder)
    temporary = folder / f".{archive.name}.{os.getpid()}.tmp"
    try:
        shutil.copyfile(archive, temporary)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise atomic.cannot_write(target, error) from error
    return True


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
            f"{site} holds something else than a ranking", hint="name a new or an empty folder"
        )
    skipped: list[Path] = []
    submissions = find(folders, site, skipped)
    if not submissions and not entries_folder.is_dir():
        raise UsageError(
            f"{', '.join(map(str, folders))}: no submission there",
            hint="put run folders or archives there: vflops archive makes one, --add copies it",
        )
    store = Store(entries_folder, judged_by(signers))
    # Where nothing is kept, the processes that read take the fingerprints as well.
    keys = {each: store.key(each.fingerprint()) for each in submissions} if store else {}
    kept = {each: entry for each, key in keys.items() if (entry := store.get(key)) is not None}
    new = [each for each in submissions if each not in kept]
    for entries in read_all(new, signers):
        made = {each: store.key(fingerprint) for each, (fingerprint, _) in entries.items()}
        store.add({made[each]: entry for each, (_, entry) in entries.items()})
        keys |= made
        kept |= {each: entry for each, (_, entry) in entries.items()}
        progress(len(kept), len(submissions))
    store.keep_only(set(keys.values()))
    found = ranking([kept[each] for each in submissions])
    written = _write(found, site)
    index = site / "index.html"
    return Built(index, len(submissions), len(new), found, written, tuple(skipped))


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
    written = int(_put(site / "index.html", ranking_pages.index_page(found)))
    for name in sorted(names):
        page = ranking_pages.system_page(ranked.get(name, []), apart.get(name, []))
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
