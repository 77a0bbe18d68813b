"""The lines of a PDB file with new atomic positions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

import gemmi
import numpy as np

from ..metadata import PLACED_REMARKS, RECORD_ORDER, STALE_REMARKS, Metadata, remark_number
from ..model import AtomRecord
from ..written_structures import Header, WrittenAtoms
from .numbers import TOLERANCE, leading_number, rewritten

ANISOTROPIC = ("ANISOU", "SIGATM", "SIGUIJ")
"""Records that follow an atom, on its displacement and the uncertainty of its position: true only where it was."""
FRAME = ("ORIGX", "SCALE", "MTRIX")
"""Records with operators in the coordinate frame of the input."""
COORDINATES = ("ATOM", "HETATM")
ROUNDING = 0.02
"""Å by which rounded coordinates may change the length of a bond."""

_Key = tuple[str, ...]


def kept_pdb(
    metadata: Metadata,
    atoms: WrittenAtoms,
    as_read: WrittenAtoms,
    header: Header,
    generated: Sequence[str],
) -> list[str] | None:
    """Return the lines of the file that a model was read from, with its atoms as they are now.

    A line stays as it is unless the fit makes it untrue: coordinates, B factors and occupancies are written anew where they
    differ, so are lengths of LINK and SSBOND, angles of CISPEP, and the counts of MASTER. Missing elements are filled in.
    Left out are `STALE_REMARKS`, anisotropic displacements of atoms that moved or have another B factor, further models, and what
    depends on the old place if the model was moved elsewhere. Bonds and cis peptides that the file does not name are added.

    `metadata` of a PDB file; `atoms`, `as_read`: all atoms, with those of conformers that are not fitted, as they are
    now, and with the B factors and occupancies that they were read with; `generated`: lines of SSBOND, LINK, CISPEP and
    CRYST1 as they are now. Returns None where the lines of the file cannot be matched with the atoms.
    """
    lines = _first_model(metadata.text.split("\n"))
    places = _atoms_of_lines(lines, as_read.records)
    if places is None:
        return None
    written, moved = _with_atoms(lines, places, atoms, as_read)
    written = [line for line in written if _is_true(line, metadata, header)]
    written = _with_resolution(written, lines, metadata)
    written = _with_crystal(written, header, generated)
    find = _finder(atoms)
    written = _with_bonds(written, header, generated, find, moved)
    written = _with_cis_peptides(written, generated, find, moved)
    while written and not written[-1].strip():
        written.pop()
    if not written or _record(written[-1]) != "END":
        written.append("END")
    return _with_counts(written, lines)


def _record(line: str) -> str:
    return line[:6].strip().upper()


def _first_model(lines: Sequence[str]) -> list[str]:
    """Return lines without further models and, where there are any, without model numbers."""
    if sum(_record(line) == "MODEL" for line in lines) < 2:
        return list(lines)
    kept: list[str] = []
    count, is_inside = 0, False
    for line in lines:
        record = _record(line)
        if record in ("MODEL", "ENDMDL"):
            is_inside = record == "MODEL"
            count += is_inside
        elif record != "NUMMDL" and not (is_inside and count > 1):
            kept.append(line)
    return kept


def _key_of_line(line: str) -> _Key:
    return (
        *(line[20:22].strip(), line[22:26].strip(), line[26:27].strip(), line[17:20].strip()),
        *(line[12:16].strip(), line[16:17].strip(), line[72:76].strip()),
    )


def _key_of_atom(record: AtomRecord) -> _Key:
    return (
        *(record.chain, str(record.residue_number), record.insertion_code, record.residue_name),
        *(record.name, record.altloc, record.segment),
    )


def _atoms_of_lines(lines: Sequence[str], records: Sequence[AtomRecord]) -> dict[int, int] | None:
    """Return the atom of each ATOM and HETATM line; None where names do not identify it, or an atom has no line."""
    of_name: dict[_Key, deque[int]] = defaultdict(deque)
    for index, record in enumerate(records):
        of_name[_key_of_atom(record)].append(index)
    places: dict[int, int] = {}
    for row, line in enumerate(lines):
        if _record(line) not in COORDINATES:
            continue
        candidates = of_name.get(_key_of_line(line))
        if not candidates:
            return None
        places[row] = candidates.popleft()
    return places if len(places) == len(records) else None


def _with_atoms(
    lines: Sequence[str], places: Mapping[int, int], atoms: WrittenAtoms, as_read: WrittenAtoms
) -> tuple[list[str], bool]:
    """Return lines with changed values of atoms, and whether any moved or has another B factor, to the digits of the file."""
    index = np.array([*places.values()], dtype=np.int64)
    told = [[leading_number(lines[row][start : start + 8]) for start in (30, 38, 46)] for row in places]
    positions = atoms.positions[index]
    is_same = np.abs(np.reshape(told, (-1, 3)) - positions) <= TOLERANCE * 1e-3
    occupancies, b_factors = (
        np.where(np.abs(now - before)[index] > 5.001e-3, now[index], np.nan)
        for now, before in ((atoms.occupancies, as_read.occupancies), (atoms.b_factors, as_read.b_factors))
    )
    changed = ~is_same.all(axis=1) | ~np.isnan(b_factors)
    values = (each.tolist() for each in (positions, is_same, occupancies, b_factors))
    own = dict(zip(places, zip((atoms.records[k].element.upper() for k in index), changed.tolist(), *values)))
    result = []
    stays = True
    for row, line in enumerate(lines):
        if row in own:
            element, is_changed, *of_line = own[row]
            stays = not is_changed
            result.append(_atom_line(line, element, *of_line))
        elif stays or _record(line) not in ANISOTROPIC:
            result.append(line)
    return result, bool(changed.any())


def _atom_line(
    line: str, element: str, position: list[float], is_same: list[bool], occupancy: float, b_factor: float
) -> str:
    """Return the line of an atom, with coordinates that are not the same rewritten, and values that are not nan."""
    if not all(is_same):
        coordinates = (
            line[start : start + 8] if same else f"{value:8.3f}"
            for start, value, same in zip((30, 38, 46), position, is_same)
        )
        line = line[:30] + "".join(coordinates) + line[54:]
    for start, value in ((54, occupancy), (60, b_factor)):
        if not math.isnan(value):
            text = line[start : start + 6]
            line = f"{line:<{start + 6}}"
            line = line[:start] + rewritten(text, min(max(value, -99.0), 999.99), 2, 6) + line[start + 6 :]
    if line[76:78].strip().upper() != element:
        line = f"{line:<78}"
        line = f"{line[:76]}{element:>2s}{line[78:]}"
    return line


def _is_true(line: str, metadata: Metadata, header: Header) -> bool:
    """Return whether a line other than an atom's is still true of the model."""
    record = _record(line)
    if record == "REMARK":
        about = remark_number(line)
        return about not in STALE_REMARKS and not (
            (about in PLACED_REMARKS and metadata.is_elsewhere)
            or (about == 290 and (header.space_group != metadata.structure.spacegroup_hm or not header.cell))
        )
    return not (metadata.is_elsewhere and record[:5] in FRAME)


def _with_resolution(written: list[str], lines: Sequence[str], metadata: Metadata) -> list[str]:
    """Return lines with the resolution, where only omitted refinement remarks gave it."""
    remarks = [line for line in metadata.structure.raw_remarks if remark_number(line) == 2]
    if not remarks or any(_record(line) == "REMARK" and remark_number(line) == 2 for line in written):
        return written
    return _inserted(written, remarks)


def _with_crystal(written: list[str], header: Header, generated: Sequence[str]) -> list[str]:
    """Return lines with the present cell."""
    rows = [row for row, line in enumerate(written) if _record(line) == "CRYST1"]
    now = next((line for line in generated if _record(line) == "CRYST1"), None)
    for row in rows[::-1]:
        if now is None:
            # A dummy cell of 1 Å means that there is no crystal.
            if not _same_cell(written[row], _NO_CELL):
                del written[row]
        elif not _same_cell(written[row], now):
            written[row] = now
    return written if rows or now is None else _inserted(written, [now])


_NO_CELL = "CRYST1    1.000    1.000    1.000  90.00  90.00  90.00 P 1"


def _same_cell(line: str, other: str) -> bool:
    spans = ((6, 15), (15, 24), (24, 33), (33, 40), (40, 47), (47, 54))
    same = all(abs(leading_number(line[a:b]) - leading_number(other[a:b])) < 1e-3 for a, b in spans)
    groups = (gemmi.find_spacegroup_by_name(text[55:66].strip()) for text in (line, other))
    first, second = (group.xhm() if group is not None else "P 1" for group in groups)
    return same and (first == second or other is _NO_CELL)


_Find = Callable[[tuple[str, ...]], "np.ndarray | None"]


def _finder(atoms: WrittenAtoms) -> _Find:
    """Return what finds the position of an atom by chain, number with insertion code, name and label (any if none is given)."""
    known: dict[_Key, int] = {}
    for k, record in enumerate(atoms.records):
        number = f"{record.residue_number}{record.insertion_code}"
        known.setdefault((record.chain, number, record.name, record.altloc), k)
        known.setdefault((record.chain, number, record.name, ""), k)
    return lambda key: atoms.positions[known[key]] if key in known else None


def _ends(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return chain, number, name and label of the atoms in a line of SSBOND or LINK."""
    if _record(line) == "SSBOND":
        spans = ((15, 17, 22), (29, 31, 36))
        first, second = ((line[a : a + 1].strip(), line[b:c].strip(), "SG", "") for a, b, c in spans)
        return first, second
    starts = (12, 42)
    first, second = (
        (
            *(line[k + 9 : k + 10].strip(), line[k + 10 : k + 15].strip()),
            *(line[k : k + 4].strip(), line[k + 4 : k + 5].strip()),
        )
        for k in starts
    )
    return first, second


def _with_bonds(
    written: list[str], header: Header, generated: Sequence[str], find: _Find, moved: bool
) -> list[str]:
    """Return lines with the present lengths in SSBOND and LINK, and with records for bonds that the file lacks."""
    now = {
        (frozenset(_ends(line)), _leads_away(line)): line
        for line in generated
        if _record(line) in ("SSBOND", "LINK")
    }
    result: list[str] = []
    for line in written:
        if _record(line) not in ("SSBOND", "LINK"):
            result.append(line)
            continue
        ends, away = _ends(line), _leads_away(line)
        twin = now.pop((frozenset(ends), away), None)
        if away and not header.space_group:
            continue
        found = [find(end) for end in ends]
        told, length = leading_number(line[73:78]), np.nan
        if away and twin is not None:
            length = leading_number(twin[73:78])
        elif not away and all(each is not None for each in found):
            length = float(np.linalg.norm(np.subtract(*found)))
        if not np.isnan(told - length) and (moved or abs(told - length) > ROUNDING):
            line = f"{line[:73]}{rewritten(line[73:78], length, 2, 5)}{line[78:]}"
        result.append(line)
    count = sum(_record(line) == "SSBOND" for line in result)
    disulphides = [
        f"{line[:7]}{count + place:3d}{line[10:]}"
        for place, line in enumerate((line for line in now.values() if _record(line) == "SSBOND"), start=1)
    ]
    result = _inserted(result, disulphides)
    return _inserted(result, [line for line in now.values() if _record(line) == "LINK"])


def _leads_away(line: str) -> bool:
    """Return whether the second atom of a bond is in a crystallographic symmetry copy."""
    first, second = line[59:65].strip(), line[66:72].strip()
    return bool(first and second) and first != second


def _with_cis_peptides(written: list[str], generated: Sequence[str], find: _Find, moved: bool) -> list[str]:
    """Return lines with the present cis peptides."""
    now = {_peptide(line): line for line in generated if _record(line) == "CISPEP"}
    result: list[str] = []
    for line in written:
        if _record(line) == "CISPEP":
            key = _peptide(line)
            twin = now.pop(key, None)
            if moved and twin is not None and line[53:59].strip():
                line = f"{line[:53]}{rewritten(line[53:59], leading_number(twin[53:59]), 2, 6)}{line[59:]}"
            ends = [find((*end, name, "")) for end, name in zip(key, ("C", "N"))]
            if twin is None and all(each is not None for each in ends):
                continue
        result.append(line)
    count = sum(_record(line) == "CISPEP" for line in result)
    added = [f"{line[:7]}{count + k:3d}{line[10:]}" for k, line in enumerate(now.values(), start=1)]
    return _inserted(result, added)


def _peptide(line: str) -> tuple[tuple[str, str], tuple[str, str]]:
    first, second = ((line[a : a + 1].strip(), line[a + 2 : a + 7].strip()) for a in (15, 29))
    return first, second


def _inserted(lines: list[str], new: Sequence[str]) -> list[str]:
    """Return lines with new ones of a record inserted after existing ones, or where the format puts them."""
    if not new:
        return lines
    order = {name: place for place, name in enumerate(RECORD_ORDER)}
    own = order[_record(new[0])]
    place = 0
    for row, line in enumerate(lines):
        record = _record(line)
        if record in COORDINATES or record == "MODEL":
            break
        if order.get(record, len(order)) <= own:
            place = row + 1
    return [*lines[:place], *new, *lines[place:]]


def _with_counts(written: list[str], lines: Sequence[str]) -> list[str]:
    """Return lines with MASTER's counts corrected for added and removed records."""
    row = next((row for row, line in enumerate(written) if _record(line) == "MASTER"), None)
    if row is None:
        return written
    master = written[row]
    change = _counts(written) - _counts(lines)
    for place in np.flatnonzero(change):
        start = 10 + 5 * int(place)
        text = master[start : start + 5]
        if text.strip().isdecimal():
            master = f"{master[:start]}{int(text) + int(change[place]):5d}{master[start + 5 :]}"
    written[row] = master
    return written


def _counts(lines: Sequence[str]) -> np.ndarray:
    """Return the numbers of records that MASTER counts, in its order."""
    counts = Counter(_record(line) for line in lines)
    frame = sum(count for record, count in counts.items() if record[:5] in FRAME)
    told = (
        *(counts["REMARK"], 0, counts["HET"], counts["HELIX"], counts["SHEET"], counts["TURN"]),
        *(counts["SITE"], frame, counts["ATOM"] + counts["HETATM"], counts["TER"], counts["CONECT"]),
        counts["SEQRES"],
    )
    return np.array(told)
