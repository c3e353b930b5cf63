"""Damaged versions of a good file, as disks, editors and strangers make them.

``mutate`` knows JSON, JSON lines, chained logs, ``.npz`` and archives: it changes what is inside
and repairs hashes and checksums, so that readers see the damage and not only a broken wrapping.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 10**9, 2**63, 2**70, 10**400, 1e308, -1e308, 5e-324, 0.5),
    *(float("nan"), float("inf"), -(10**400)),
    *("", "x", "x" * 5000, "\0", "../../x", "/etc/passwd", "a/b", ".", "-", "\ud800", "\U0001f600"),
    *("2026-13-45T99:99:99", "0001-01-01T00:00:00+23:00", "nan", "inf", "[]", "r99999-w99999"),
    *([], {}, [[]], {"": None}, {"a": {}}, [None] * 3, [0, "1", {}], [1.5, 2.5], [10**400]),
)
"""Values in place of the expected ones."""
TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"\\ud800"', b'"\\u0000"'),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"[" * 900 + b"]" * 900, b"a." * 300 + b"a=1\n"),
    *(b"9" * 5000, b"0x" + b"f" * 5000, b"NaN", b"1e999", b"-1", b"1e308", b"true", b"{}", b"[]"),
    *(b"0001-01-01T00:00:00+23:00", b"9999-12-31T23:59:59-23:00", b"1969-01-01", b"25:00"),
    *(b"\n", b"\r", b'"', b"'", b",", b",,", b"=", b".", b" ", b"x" * 200_000),
)
"""Bytes in place of the expected ones."""
_NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_BLOCK = 512


def mutate(name: str, content: bytes, draw: random.Random) -> bytes:
    """Return a damaged version of a file called ``name``."""
    if name.endswith(".npz") and draw.random() < 0.7:
        return _in_zip(content, draw)
    if name.endswith(".tar.bz2") and draw.random() < 0.85:
        return bz2.compress(_in_tar(bz2.decompress(content), draw), 1)
    if name.endswith(".state") and draw.random() < 0.5:
        first, header, tensors = content.split(b"\n", 2)
        return b"\n".join([first, _another_part(header + b"\n", draw).strip(), tensors])
    ways: list[Mutation] = [*_BINARY] if _is_binary(name) else [*_TEXT]
    if ".json" in name:
        ways += [_another_part] * len(ways)
    damaged = draw.choice(ways)(content, draw)
    if name.endswith("events.jsonl") and draw.random() < 0.6:
        damaged = rechained(content, damaged)
    return damaged


def rechained(content: bytes, damaged: bytes) -> bytes:
    """Return a damaged log whose lines follow each other again, from the first line's anchor."""
    prev = json.loads(content.partition(b"\n")[0])["prev"]
    lines = []
    for line in damaged.split(b"\n"):
        try:
            data = json.loads(line)
            data["prev"] = prev
            made = json.dumps(data, sort_keys=True, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError):
            made = line
        lines.append(made)
        prev = hashlib.sha256(made).hexdigest()
    return b"\n".join(lines)


def _is_binary(name: str) -> bool:
    return name.endswith((".h5", ".npy", ".npz", ".bz2", ".bin", ".state"))


def _flip(content: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _splice(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + draw.choice(TEXTS) + content[start + draw.choice((0, 1, 8)) :]


def _repeat(content: bytes, draw: random.Random) -> bytes:
    """Copy a piece of the file over or into another place."""
    start, to = draw.randrange(len(content)), draw.randrange(len(content) + 1)
    piece = content[start : start + draw.choice((1, 8, 64, 512))]
    return content[:to] + piece + content[to + draw.choice((0, len(piece))) :]


def _number(content: bytes, draw: random.Random) -> bytes:
    """Replace a binary number."""
    size = draw.choice((1, 2, 4, 8))
    start = draw.randrange(max(len(content) - size, 1))
    value = draw.choice(_NUMBERS) & ((1 << 8 * size) - 1)
    return content[:start] + value.to_bytes(size, "little") + content[start + size :]


def _another_word(content: bytes, draw: random.Random) -> bytes:
    """Replace a key or a value."""
    words = [match.span() for match in re.finditer(rb"[^\s=,:\[\]{}]+", content)]
    start, end = draw.choice(words)
    return content[:start] + draw.choice(TEXTS) + content[end:]


def _another_part(content: bytes, draw: random.Random) -> bytes:
    """Change a part of a JSON document, or of one line of JSON lines."""
    lines = content.split(b"\n")
    whole = lines[0] == b"{"
    at = draw.randrange(len(lines) - 1 or 1)
    data = json.loads(content if whole else lines[at])
    part: Any = data
    while True:
        key = draw.choice(list(part) if isinstance(part, dict) else range(len(part)))
        inner = part[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.15:
            break
        part = inner
    way = draw.random()
    if way < 0.15:
        del part[key]
    elif way < 0.25 and isinstance(part, list):
        part.append(inner)
    elif way < 0.3 and isinstance(part, dict):
        part[draw.choice(("", "x", "schema", "job", "__class__"))] = inner
    elif way < 0.35:
        part[key] = _nested(inner, draw.choice((1, 50, 400)))
    elif way < 0.5 and isinstance(inner, int | float):
        part[key] = draw.choice((-inner, inner * 2, inner + 1, inner - 1, inner * 1e6, str(inner)))
    else:
        part[key] = draw.choice(VALUES)
    made = json.dumps(data).encode()
    if draw.random() < 0.05:  # a key twice
        made = re.sub(rb'("[^"\\]*"): (\d+)', rb"\1: \2, \1: 1\2", made, count=1)
    return made if whole else b"\n".join([*lines[:at], made, *lines[at + 1 :]])


def _nested(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def _in_zip(content: bytes, draw: random.Random) -> bytes:
    """Damage a member of a zip file, with the right checksum."""
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    name = draw.choice(list(members))
    if draw.random() < 0.1:
        del members[name]
    else:
        members[name] = draw.choice((_flip, _cut, _number, _header_text))(members[name], draw)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for member, data in members.items():
            packed.writestr(member, data)
    return file.getvalue()


def _header_text(content: bytes, draw: random.Random) -> bytes:
    """Change the header of an ``.npy`` file, which is the text of a Python dict."""
    end = content.find(b"\n")
    start = draw.randrange(10, max(end, 11))
    new = draw.choice((b"(", b")", b"'", b",", b"9" * 9, b"-1", b"O", b"\\", b"#", b"\0", b"{"))
    return content[:start] + new + content[start + draw.choice((0, 1, len(new))) :]


def _in_tar(content: bytes, draw: random.Random) -> bytes:
    """Damage a tar file; half of the damaged headers get the right checksum."""
    damaged = bytearray(draw.choice((_flip, _cut, _number, _splice, _repeat))(content, draw))
    if draw.random() < 0.5:
        start = _BLOCK * draw.randrange(max(len(content) // _BLOCK, 1))
        headers = [
            at for at in range(0, len(content), _BLOCK) if content[at + 257 :][:5] == b"ustar"
        ]
        start = draw.choice(headers)
        header = bytearray(_number(content[start : start + _BLOCK], draw))
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        damaged = bytearray(content)
        damaged[start : start + _BLOCK] = header
    return bytes(damaged)


_BINARY: tuple[Mutation, ...] = (_flip, _flip, _cut, _number, _number, _repeat, _splice)
_TEXT: tuple[Mutation, ...] = (_flip, _cut, _splice, _repeat, _another_word)
