"""The static site of ``vflops ranking``, built from folders of submissions."""

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
from vflops.publish.ranking.audit_files import UnusableAudit
from vflops.publish.ranking.audit_join import NO_AUDITS, AuditSources, join_audits
from vflops.publish.ranking.entry_store import Store
from vflops.publish.ranking.judge import NO_KEYS, TrustedKeys, verdict_context
from vflops.publish.ranking.lists import (
    Ranked,
    Ranking,
    Unranked,
    energy_ranking,
    ranking,
    system_id,
)
from vflops.publish.ranking.reader_processes import read_all
from vflops.publish.ranking.submission_folders import ARCHIVE, find
from vflops.record.files import atomic

_SYSTEM_PAGE = re.compile("[0-9a-f]{12}[.]html")

Progress = Callable[[int, int], None]
"""Called with the number of submissions read so far, and the total."""


@dataclass(frozen=True)
class Built:
    """The outcome of a build."""

    index: Path
    submissions: int
    read: int
    """The number of submissions that were new or changed."""
    ranking: Ranking
    """The ranking by performance."""
    energy: Ranking
    """The ranking by energy, of those results that rank by performance."""
    written: int
    """The number of pages that changed."""
    skipped: tuple[Path, ...] = ()
    """Files that are not submissions."""
    to_retry: int = 0
    """The number of submissions that this machine failed to read; the next build tries again."""
    unusable_audits: tuple[UnusableAudit, ...] = ()
    """Audits that cannot be read, or whose runs were not submitted."""


def add(archive: Path, folder: Path) -> bool:
    """Copy an archive into ``folder``; return False if it is there already.

    A different archive of the same name is never replaced.
    """
    if not archive.is_file() or not archive.name.endswith(ARCHIVE):
        raise UsageError(
            f"{archive} is not an archive of a run", hint=f"give a {ARCHIVE} file of vflops archive"
        )
    target = folder / archive.name
    if target.exists() and not filecmp.cmp(target, archive, shallow=False):
        raise UsageError(
            f"{target} already exists and is a different archive", hint="rename the archive"
        )
    if target.exists():
        return False
    atomic.make_folder(folder)
    temporary = folder / f".{archive.name}.{os.getpid()}.tmp"
    try:
        shutil.copyfile(archive, temporary)
        temporary.replace(target)
    except OSError as error:
        raise atomic.cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return True


def build(
    folders: Sequence[Path],
    site: Path,
    *,
    trusted: TrustedKeys = NO_KEYS,
    audits: AuditSources = NO_AUDITS,
    progress: Progress = lambda done, total: None,
) -> Built:
    """Read new and changed submissions, rank all, and write the pages that changed."""
    entries_folder = site / ".entries"
    if site.is_file() or (site.exists() and not entries_folder.is_dir() and any(site.iterdir())):
        raise UsageError(
            f"{site} holds something other than a ranking", hint="name a new or an empty folder"
        )
    skipped: list[Path] = []
    submissions = find(folders, site, skipped)
    if not submissions and not entries_folder.is_dir():
        raise UsageError(
            f"no submission in {', '.join(map(str, folders))}",
            hint="put run folders or archives there: vflops archive writes one, --add copies it",
        )
    store = Store(entries_folder, verdict_context(trusted))
    # Without stored entries, the reading processes compute the fingerprints as well.
    keys = (
        {submission: store.key(submission.fingerprint()) for submission in submissions}
        if store
        else {}
    )
    entries_read = {
        submission: entry
        for submission, key in keys.items()
        if (entry := store.get(key)) is not None
    }
    new = [submission for submission in submissions if submission not in entries_read]
    for entries in read_all(new, trusted):
        new_keys = {
            submission: store.key(fingerprint) for submission, (fingerprint, _) in entries.items()
        }
        store.add({new_keys[submission]: entry for submission, (_, entry) in entries.items()})
        keys |= new_keys
        entries_read |= {submission: entry for submission, (_, entry) in entries.items()}
        progress(len(entries_read), len(submissions))
    store.keep_only(set(keys.values()))
    audited = join_audits([entries_read[submission] for submission in submissions], audits)
    ranked = ranking(audited.entries)
    energy = energy_ranking(ranked)
    written = _write_pages(ranked, energy, audited.unusable, site)
    return Built(
        index=site / "index.html",
        submissions=len(submissions),
        read=len(new),
        ranking=ranked,
        energy=energy,
        written=written,
        skipped=tuple(skipped),
        to_retry=sum(entry.retry for entry in entries_read.values()),
        unusable_audits=audited.unusable,
    )


def _write_pages(
    ranking: Ranking, energy: Ranking, unusable_audits: Sequence[UnusableAudit], site: Path
) -> int:
    systems = site / "systems"
    atomic.make_folder(systems)
    ranked: dict[str, list[Ranked]] = {}
    unranked: dict[str, list[Unranked]] = {}
    for row in ranking.ranked:
        ranked.setdefault(system_id(row.entry), []).append(row)
    for excluded in ranking.unranked:
        if excluded.entry.system:
            unranked.setdefault(system_id(excluded.entry), []).append(excluded)
    names = {*ranked, *unranked}
    index = ranking_pages.index_page(ranking, energy, unusable_audits)
    written = int(_write_changed(site / "index.html", index))
    energy_ranks = {id(row.result): row.rank for row in energy.ranked}
    for name in sorted(names):
        page = ranking_pages.system_page(ranked.get(name, []), unranked.get(name, []), energy_ranks)
        written += _write_changed(systems / f"{name}.html", page)
    for path in systems.iterdir():
        if _SYSTEM_PAGE.fullmatch(path.name) and path.stem not in names:
            path.unlink()
    return written


def _write_changed(path: Path, page: str) -> bool:
    """Write a page if it changed, atomically but without fsync, since it can be rebuilt."""
    data = page.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise atomic.cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return True
