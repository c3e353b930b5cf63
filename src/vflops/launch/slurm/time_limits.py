"""The time limit of a job: of its directives, of ``site.toml``, or of the partition."""

from __future__ import annotations

import re

from vflops.launch.site import SiteSettings
from vflops.launch.slurm.commands import listing


def time_limit_s(site: SiteSettings) -> float | None:
    """Return the time limit of the site's jobs in seconds; None if none is known.

    A ``--time`` in the directives takes precedence, then ``time_limit``, then the partition.
    """
    directive = site.directive("time", "t")
    if directive is not None:
        return requested_s(directive)
    return site.time_limit_s or default_limit_s(site.used_partition)


def requested_s(limit: str) -> float | None:
    """Return the seconds of a limit as ``sbatch`` reads it; None if it means no limit.

    One number is minutes and two are minutes and seconds, but after days the first is hours.
    """
    days, dash, rest = limit.rpartition("-")
    if re.fullmatch(r"\d+(:\d+){0,2}", rest) is None or (dash and not days.isdigit()):
        return None
    numbers = [int(part) for part in rest.split(":")]
    if dash or len(numbers) == 3:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
    else:
        hours, minutes, seconds = 0, *(*numbers, 0)[:2]
    return (((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds) or None


def default_limit_s(partition: str | None) -> float | None:
    """Return the time limit of a job that sets none; None if it is not known or there is none.

    A job may be for several partitions, separated by commas: then the shortest limit counts.
    """
    lines = listing(["sinfo", "--noheader", "--format=%P|%L|%l"])
    limits, named = [], partition.split(",") if partition else []
    for line in lines:
        name, default, longest = line.strip().split("|")
        if name.rstrip("*") in named or (not named and name.endswith("*")):
            limits.append(_listed_s(longest if default == "n/a" else default))
    return min((limit for limit in limits if limit is not None), default=None)


def _listed_s(limit: str) -> float | None:
    """Return the seconds of ``[days-][[hours:]minutes:]seconds``; None for ``infinite``."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", limit)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
