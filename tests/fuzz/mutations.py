"""Damage to files: each mutation follows from its seed alone."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable
from functools import cache

Mutation = Callable[[random.Random, bytes], bytes]

words = str.split
WRONG_NUMBERS = [
    *words("0 -1 1 -0 +7 007 2147483647 -2147483648 2147483648 4294967296 9223372036854775807"),
    *words("1e5 1e30 1e39 -1e39 1e308 1e400 1e-400 99999999 -99999.9"),
    *("1" + "0" * 60, "9" * 5000),
    *words("nan NaN -nan inf -inf infinity 0x10 1_0 1,5 1.2.3 --1 1e . - ? ' \""),
    *("", *words("true [] {} ***** 1.0(3) ٣ ½")),
]
WRONG_INTEGERS = [
    *(0, 1, -1, 2, 3, 4, 5, 7, 80, 101, 127, 255, 401, 1024, 32767, 65535, 65536, 2**20, 2**24, 2**28),
    *(2**30, 2**31 - 1, -(2**31), -80, -(2**30), 0x01010101, 0x44440000, 10**6, 10**9),
]
WRONG_FLOATS = [
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        90.0,
        180.0,
        120.0,
        0.5,
        1e-3,
        1e-30,
        1e-45,
        1e3,
        1e6,
        1e9,
        1e30,
        3.4e38,
        -3.4e38,
    ),
    *map(float, ("nan", "inf", "-inf")),
]
STRANGE = [
    *(
        b"\x00",
        b"\xff",
        b"\xe9",
        "é".encode(),
        "\u2028".encode(),
        b"\x1c",
        b"\x85",
        b"\t",
        b"\r",
        b"\n",
        b"\x1f\x8b",
    ),
    *(b"#", b";"),
]


def flip_bits(rng: random.Random, contents: bytes) -> bytes:
    damaged = bytearray(contents)
    for _ in range(rng.choice([1, 1, 1, 3, 10, 100])):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def overwrite_bytes(rng: random.Random, contents: bytes) -> bytes:
    start, length = rng.randrange(len(contents)), rng.choice([1, 2, 4, 8, 64])
    new = rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)])
    return contents[:start] + new + contents[start + length :]


def cut(rng: random.Random, contents: bytes) -> bytes:
    return contents[: rng.randrange(len(contents))]


def lengthen(rng: random.Random, contents: bytes) -> bytes:
    return contents + rng.choice(
        [contents, b"\0" * rng.choice([1, 4, 80, 1024]), rng.randbytes(rng.randrange(1, 200))]
    )


def take_out(rng: random.Random, contents: bytes) -> bytes:
    start = rng.randrange(len(contents))
    return contents[:start] + contents[start + rng.choice([1, 1, 2, 4, 80, 400]) :]


def put_in(rng: random.Random, contents: bytes) -> bytes:
    place = rng.randrange(len(contents) + 1)
    return contents[:place] + rng.choice([*STRANGE, rng.randbytes(rng.randrange(1, 20))]) + contents[place:]


def exchange(rng: random.Random, contents: bytes) -> bytes:
    length = rng.choice([1, 4, 80])
    a, b = sorted(rng.randrange(len(contents)) for _ in range(2))
    if a + length > b:
        return contents[a:] + contents[:a]
    return (
        contents[:a]
        + contents[b : b + length]
        + contents[a + length : b]
        + contents[a : a + length]
        + contents[b + length :]
    )


def nothing_left(rng: random.Random, contents: bytes) -> bytes:
    return rng.choice([b"", b"\n", b"\0", contents[:1], rng.randbytes(rng.randrange(1, 3000))])


BYTES: list[Mutation] = [
    *[flip_bits] * 2,
    *[overwrite_bytes] * 2,
    cut,
    lengthen,
    take_out,
    put_in,
    exchange,
    nothing_left,
]

_NUMBER = re.compile(rb"[-+]?\d+\.?\d*")


def wrong_number(rng: random.Random, contents: bytes) -> bytes:
    """Put another number, or none, in the place of one."""
    found = list(_NUMBER.finditer(contents))
    if not found:
        return flip_bits(rng, contents)
    match = rng.choice(found)
    return contents[: match.start()] + rng.choice(WRONG_NUMBERS).encode() + contents[match.end() :]


def wrong_number_in_columns(rng: random.Random, contents: bytes) -> bytes:
    """Do so without moving what follows in the line."""
    found = list(_NUMBER.finditer(contents))
    if not found:
        return flip_bits(rng, contents)
    match = rng.choice(found)
    length = match.end() - match.start()
    new = rng.choice(WRONG_NUMBERS).encode("ascii", "replace")[:length].rjust(length)
    return contents[: match.start()] + new + contents[match.end() :]


def strange_character(rng: random.Random, contents: bytes) -> bytes:
    place, new = rng.randrange(len(contents)), rng.choice(STRANGE)
    return contents[:place] + new + contents[place + len(new) :]


def exchange_fields(rng: random.Random, contents: bytes) -> bytes:
    """Exchange two words of a line."""
    lines = contents.split(b"\n")
    n = rng.randrange(len(lines))
    words = re.split(rb"( +)", lines[n])
    a, b = rng.randrange(len(words)), rng.randrange(len(words))
    words[a], words[b] = words[b], words[a]
    return b"\n".join([*lines[:n], b"".join(words), *lines[n + 1 :]])


def change_lines(rng: random.Random, contents: bytes) -> bytes:
    """Take a line out, repeat or move it, or cut it short."""
    lines = contents.split(b"\n")
    n = rng.randrange(len(lines))
    line = lines.pop(n)
    what = rng.randrange(4)
    if what == 1:
        lines[n:n] = [line] * rng.choice([2, 3, 200])
    elif what == 2:
        lines.insert(rng.randrange(len(lines) + 1), line)
    elif what == 3:
        lines.insert(n, line[: rng.randrange(len(line) + 1)])
    return b"\n".join(lines)


def nest(rng: random.Random, contents: bytes) -> bytes:
    """Open what is never closed, or very deep."""
    place = rng.randrange(len(contents) + 1)
    opening = rng.choice([b"[", b"{", b"'", b'"', b'"""', b";\n", b"loop_\n", b"data_", b"[[", b"("])
    return contents[:place] + opening * rng.choice([1, 1, 2, 3000]) + contents[place:]


TEXT: list[Mutation] = [
    *[wrong_number] * 2,
    *[wrong_number_in_columns] * 2,
    *(strange_character, exchange_fields, change_lines, nest),
]

_MRC_INTEGERS = [*range(0, 40, 4), 64, 68, 72, 88, 92, 108, 212, 220]
_MRC_FLOATS = [*range(40, 64, 4), 76, 80, 84, 196, 200, 204, 216]


def mrc_header(rng: random.Random, contents: bytes) -> bytes:
    """Write other values into fields of an MRC header."""
    damaged = bytearray(contents)
    if len(damaged) < 1024:
        return flip_bits(rng, contents)
    order = rng.choice("<<<<>")
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.6:
            struct.pack_into(f"{order}i", damaged, rng.choice(_MRC_INTEGERS), rng.choice(WRONG_INTEGERS))
        else:
            struct.pack_into(f"{order}f", damaged, rng.choice(_MRC_FLOATS), rng.choice(WRONG_FLOATS))
    return bytes(damaged)


def float_in_data(start: int) -> Mutation:
    """Return a mutation that writes another float into what follows a header."""

    def mutate(rng: random.Random, contents: bytes) -> bytes:
        count = (len(contents) - start) // 4
        if count < 1:
            return flip_bits(rng, contents)
        damaged = bytearray(contents)
        for _ in range(rng.choice([1, 1, 5])):
            struct.pack_into("<f", damaged, start + 4 * rng.randrange(count), rng.choice(WRONG_FLOATS))
        return bytes(damaged)

    return mutate


MRC: list[Mutation] = [*BYTES, *[mrc_header] * 8, float_in_data(1024)]


def packed(mutations: list[Mutation]) -> Mutation:
    """Return a mutation of what a gzip file holds, so that its sums are right."""

    def mutate(rng: random.Random, contents: bytes) -> bytes:
        return gzip.compress(rng.choice(mutations)(rng, gzip.decompress(contents)), 1, mtime=0)

    return mutate


def bomb(rng: random.Random, contents: bytes) -> bytes:
    """Put many zeros behind what a gzip file holds."""
    return contents + _packed_zeros(rng.choice([10**6, 4 * 10**7]))


@cache
def _packed_zeros(count: int) -> bytes:
    return gzip.compress(bytes(count), 9, mtime=0)


def mtz_header(rng: random.Random, contents: bytes) -> bytes:
    """Write another number or word into a record of an MTZ header."""
    start = contents.find(b"VERS MTZ")
    if start < 0:
        return flip_bits(rng, contents)
    records = [bytearray(contents[k : k + 80]) for k in range(start, len(contents), 80)]
    record = rng.choice(records)
    words = list(re.finditer(rb"\S+", record))
    if words:
        word = rng.choice(words)
        new = rng.choice([rng.choice(WRONG_NUMBERS).encode(), rng.choice(STRANGE), b"F", b"H", b"P", b"END"])
        length = min(max(len(new), word.end() - word.start()), 80 - word.start())
        record[word.start() : word.start() + length] = new.ljust(length)[:length]
    return contents[:start] + b"".join(records)


MTZ: list[Mutation] = [*BYTES, *[mtz_header] * 6, float_in_data(80), float_in_data(0), mrc_header]


def state_entry(rng: random.Random, contents: bytes) -> bytes:
    """Change one member of an archive of arrays, with sums that are right."""
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    what = rng.randrange(5)
    if what == 0:
        members[name] = rng.choice([*BYTES, wrong_number])(rng, members[name])
    elif what == 1:
        old = re.search(rb"'descr': '[^']+'|'shape': \([^)]*\)|'fortran_order': \w+", members[name])
        dtypes = [b"'descr': " + kind for kind in (b"'<f4'", b"'>f8'", b"'|O'", b"'<c16'", b"'|V8'", b"3")]
        shapes = b"(5, 4)", b"(3, 5)", b"(15,)", b"(1125899906842624, 3)", b"(-5, -3)", b"()", b"(5, 3.0)"
        new = rng.choice([*dtypes, *(b"'shape': " + shape for shape in shapes), b"'fortran_order': True"])
        if old is not None:
            kept = members[name]
            members[name] = kept[: old.start()] + new + kept[old.end() :]
    elif what == 2:
        del members[name]
    elif what == 3:
        members[rng.choice(["other.npy", "../box.npy", "plain.npy", "positions.npy", ""])] = members[name]
    else:
        members["plain.npy"] = _changed_json(rng, members["plain.npy"])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice([zipfile.ZIP_STORED] * 5 + [zipfile.ZIP_DEFLATED])) as archive:
        for member, held in members.items():
            archive.writestr(member, held)
    return file.getvalue()


_WRONG_VALUES = [
    *(None, True, -1, 0, 1, 2.5, 10**18, 10**30, "", "a", [], {}, [1], [[1]], {"a": 1}),
    *(*map(float, ("nan", "inf")), -1e308, [[0.0, 1.0]], [0.1, [[0.0, 1.0, "2"]]]),
]


def _changed_json(rng: random.Random, member: bytes) -> bytes:
    plain = json.loads(member[128:])
    place = plain
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.6:
            place = place[key]
            continue
        if rng.random() < 0.15:
            del place[key]
        else:
            place[key] = rng.choice(_WRONG_VALUES)
        break
    text = json.dumps(plain).encode()
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % len(text)
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + text


STATE: list[Mutation] = [*BYTES, *[state_entry] * 20]
