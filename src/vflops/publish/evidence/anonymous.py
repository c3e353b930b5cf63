"""Anonymous copies of runs: without host names, paths and what programs printed.

Names are replaced by numbers wherever they occur. The hashes of the changed files, which the logs
have, and the chains of the logs are computed again, so a copy is a run folder like any other. It
commits to the original by a salted hash. The copy is a function of the original and the salt:
whoever gets both can make it again and compare the bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vflops.errors import FolderError, VflopsError
from vflops.publish.evidence.disclosure import absolute_paths
from vflops.record.files import atomic
from vflops.record.files.regular_file import read_regular
from vflops.record.files.strict_json import parse_json
from vflops.record.folder import RunFolder, file_hash
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Findings
from vflops.results.evidence.anonymous_record import AnonymousRecord, anonymous_file
from vflops.results.evidence.evidence_names import DERIVED, is_page, listing
from vflops.results.evidence.manifest import manifest_file, write_manifest
from vflops.results.score.scoring import score

_SALT = ".anonymous-salt"
"""The file with the salt in the run folder; archives never have hidden files."""
_ARRAYS = (".npz", ".npy")
_HOST_KEYS = frozenset(("host", "hosts", "node", "nodes", "reference", "submitted_from"))
"""The fields of records and events that hold host names, alone or in lists."""
_SETTINGS = ("run.json", "job.json")
_HOST = re.compile("(?!localhost$)[A-Za-z0-9][A-Za-z0-9._-]*")
_PUBLIC_PATHS = re.compile(r"/(proc|sys|etc|usr|dev(?!/shm/))/")
"""Paths that every machine has."""
_DOMAIN = r"(?:\.(?!jsonl?\b|log\b|sh\b)[A-Za-z][A-Za-z0-9-]*)*"
_COMPONENT = r"[\w.+@%=,~-]*[\w+@%=~-]"
_PATH_IN_TEXT = re.compile(
    rf"(?<![\w.:/~$%*)\]}}>-])~?/?(?:/{_COMPONENT}){{2,}}/?"
    rf"|\bfile://(?:/{_COMPONENT})+/?"
    rf"|(?<![\w./@:-])\w[\w.@:-]*:(?:/{_COMPONENT})+/?"  # a file server
)


def anonymous_copy(folder: RunFolder, target: Path) -> RunFolder:
    """Write an anonymous copy of a complete, intact run to the folder ``target``, and return it.

    Raise ``FolderError`` if a rule decides otherwise on the copy than on the run.
    """
    _Copy(folder, target, _Names(folder.path)).write()
    if fault := _derived_fault(target, folder):
        raise FolderError(
            f"{folder.path} cannot be made anonymous: in the copy, {fault}",
            hint="a name of a host may be a word that records need: archive it with its names",
        )
    made = RunFolder.open(target)
    write_manifest(made)
    return made


def _derived_fault(target: Path, folder: RunFolder) -> str | None:
    """Write score and findings of a copy; return how it differs from the original in verdicts."""
    try:
        made = RunFolder.open(target)
        score(Contents(made)).write(made.score_file)
        findings = check(Contents(made))
    except VflopsError as error:
        return error.message.replace(f"{target}/", "")
    findings.write(made.findings_file)
    differing = {rule for rule, _ in _verdicts(findings) ^ _verdicts(check(Contents(folder)))}
    return f"the rules {', '.join(sorted(differing))} decide otherwise" if differing else None


def _verdicts(findings: Findings) -> set[tuple[str, str]]:
    return {(finding.rule, finding.verdict) for finding in findings.findings}


class _Names:
    """The names of a run that are left out, each with the number that replaces it."""

    def __init__(self, folder: Path) -> None:
        hosts: dict[str, None] = {}
        self._paths: dict[str, str] = {}
        for name in listing(folder).files:
            if name.endswith((".json", ".jsonl")):
                for data in _documents(folder / name):
                    if not name.startswith("graphs/") and Path(name).name not in _SETTINGS:
                        hosts |= dict.fromkeys(_hosts(data, Path(name)))
                    for path in absolute_paths(data):
                        self._path(path)
        self._hosts: dict[str, str] = {}
        for host in sorted(hosts, key=_short):
            short = _short(host)
            number = self._hosts.get(short) or f"host-{len(set(self._hosts.values())) + 1}"
            self._hosts |= {short: number, host: number}
        self._pattern = _pattern(self._hosts, _DOMAIN, "[A-Za-z0-9_-]")
        self._path_pattern = _pattern(self._paths, "", r"[\w.]")
        self.known = frozenset((*self._hosts, *self._paths))

    def replace(self, text: str) -> str:
        """Return a text with numbers instead of names."""
        if self._path_pattern is not None:
            text = self._path_pattern.sub(lambda match: self._paths[match[1]], text)
        text = _PATH_IN_TEXT.sub(lambda match: self._path(match[0]), text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._hosts[match[1]], text)
        return text

    def _path(self, path: str) -> str:
        if _PUBLIC_PATHS.match(path) or path in self._paths.values():
            return path
        return self._paths.setdefault(path, f"/left-out/{len(self._paths) + 1}")


def _short(host: str) -> str:
    """Return the first part of a host name; an address is one part."""
    first = host.partition(".")[0]
    return host if first.isdigit() else first


def _pattern(names: Iterable[str], more: str, word: str) -> re.Pattern[str] | None:
    """Return a pattern that finds whole names, the longest first; None without names."""
    longest = sorted(names, key=lambda name: (-len(name), name))
    if not longest:
        return None
    return re.compile(f"(?<!{word})({'|'.join(map(re.escape, longest))}){more}(?!{word})")


class _Copy:
    """The copy of a run while it is written."""

    def __init__(self, folder: RunFolder, target: Path, names: _Names) -> None:
        self._from, self._to, self._names = folder.path, target, names
        self._anchor = ""
        self._new_hashes: dict[str, str] = {}
        """The hashes of files of the copy, by those of the originals."""
        self._changed: list[str] = []
        self._omitted: list[str] = []

    def write(self) -> None:
        """Write all files but the manifest."""
        atomic.make_folder(self._to)
        files = [name for name in listing(self._from).files if not is_page(name)]
        logs = sorted((name for name in files if _is_event_log(name)), key=_log_order)
        for name in [name for name in files if name not in logs]:
            if name in DERIVED:
                continue  # they are derived again
            if name.endswith((".json", ".jsonl")):
                self._write(name, self._rewritten)
            elif name.endswith(_ARRAYS):
                self._write(name, lambda data: data)
            else:
                self._omitted.append(name)
        first_anchor = file_hash(self._to / "run.json")
        previous: Path | None = None
        for log in map(Path, logs):
            follows = previous is not None and previous.parent.parent == log.parent.parent
            self._anchor = file_hash(self._to / previous) if previous and follows else first_anchor
            self._write(str(log), self._chained)
            previous = log
        AnonymousRecord(
            original_sha256=_commitment(self._from),
            changed=tuple(sorted(self._changed)),
            omitted=tuple(sorted(self._omitted)),
        ).write(anonymous_file(self._to))

    def _write(self, name: str, rewritten: Callable[[bytes], bytes]) -> None:
        data = read_regular(self._from / name)
        new_name, new = self._names.replace(name), rewritten(data)
        if name.startswith("links/"):  # its name is a hash of names
            new_name = f"links/{hashlib.sha256(new).hexdigest()[:12]}.json"
            self._new_hashes[Path(name).name] = Path(new_name).name
        atomic.make_folder((self._to / new_name).parent)
        atomic.write_bytes(self._to / new_name, new, durable=False)
        if new != data or new_name != name:
            self._changed.append(new_name)
            self._new_hashes[hashlib.sha256(data).hexdigest()] = hashlib.sha256(new).hexdigest()

    def _rewritten(self, data: bytes) -> bytes:
        """Return a document, or lines of JSON, without names; the same bytes if it has none."""
        if data.startswith(b"{\n"):
            document = parse_json(data)
            new = self._clean(document)
            return data if new == document else atomic.json_text(new).encode()
        lines = data.split(b"\n")
        return b"\n".join(self._line(line) for line in lines)

    def _line(self, line: bytes) -> bytes:
        try:
            content = parse_json(line)
        except ValueError:  # an empty or incomplete last line
            return b""
        new = self._clean(content)
        if new == content:
            return line
        return json.dumps(new, separators=(",", ":"), ensure_ascii=False).encode()

    def _chained(self, data: bytes) -> bytes:
        """Return a log of events without names, its lines chained again; without a torn line."""
        lines, prev = [], self._anchor
        for line in data.split(b"\n")[:-1]:
            event = {**self._clean(parse_json(line)), "prev": prev}  # an intact log has no other
            lines.append(json.dumps(event, sort_keys=True, ensure_ascii=False).encode() + b"\n")
            prev = hashlib.sha256(lines[-1][:-1]).hexdigest()
        return b"".join(lines)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._new_hashes.get(value) or self._names.replace(value)
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if not self._is_omitted(key)}
            return {
                self._names.replace(key) if key in self._names.known else key: self._clean(item)
                for key, item in kept.items()
            }
        return value

    def _is_omitted(self, key: str) -> bool:
        """Whether a key is the name of a file that was left out, whose hash a log has."""
        return key.endswith((".log", ".sh"))


def _commitment(folder: Path) -> str:
    """Return the salted hash of the manifest; the salt is made once and stays in the folder."""
    salt = folder / _SALT
    if not salt.is_file():
        atomic.write_text(salt, os.urandom(32).hex(), private=True)
    content = read_regular(salt) + read_regular(manifest_file(folder))
    return hashlib.sha256(content).hexdigest()


def _documents(path: Path) -> Iterator[Any]:
    """Yield the JSON document of a file, or that of each line."""
    data = read_regular(path)
    for part in [data] if data.startswith(b"{\n") else data.split(b"\n"):
        try:
            yield parse_json(part)
        except ValueError:
            continue


def _hosts(value: Any, file: Path, key: str = "") -> Iterator[str]:
    """Yield the host names in a JSON value."""
    if isinstance(value, dict):
        for name, item in value.items():
            is_name = name == "name" and file.match("node-*.json") and not key
            yield from _hosts(item, file, "node" if is_name else name)
    elif isinstance(value, list):
        for item in value:
            yield from _hosts(item, file, key)
    elif isinstance(value, str) and key in _HOST_KEYS and _HOST.fullmatch(value):
        yield value


def _is_event_log(name: str) -> bool:
    return re.fullmatch(r"jobs/[0-9]+/[0-9]+/events\.jsonl", name) is not None


def _log_order(name: str) -> tuple[bool, int, int]:
    """The log of the run comes last: it has the hashes of those of its jobs."""
    _, job, attempt, _ = name.split("/")
    return int(job) == 0, int(job), int(attempt)
