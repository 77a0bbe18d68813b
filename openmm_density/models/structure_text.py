"""PDB and mmCIF files as gemmi reads them, after a check that every number is one."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import gemmi

from ..base.cif_files import parse_cif
from ..base.errors import InputError
from ..base.given_files import check_given_file
from ..base.unpacking import read_unpacked
from ..base.wording import one_line
from .structure_suffixes import structure_format

LARGEST = 1e6
"""Å of a coordinate, or Å² of a B factor: larger numbers lose digits and cannot be intended."""

# What gemmi reads from a PDB column; otherwise it silently takes the beginning, or zero.
_DECIMAL = re.compile(r" *[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+) *")
# An element has no digits; a charge has more than digits.
_OLD_NUMBER = re.compile(
    r"^((?:ATOM  |HETATM|ANISOU|SIGATM|SIGUIJ|TER   ).{66})[0-9][0-9A-Z]{3} *[0-9]+[ \r]*$", re.MULTILINE
)
_PDB_NUMBERS = (
    *(("coordinate", 30, 38), ("coordinate", 38, 46), ("coordinate", 46, 54)),
    *(("occupancy", 54, 60), ("B factor", 60, 66)),
)
_CIF_NUMBERS = (
    *(("coordinate", "Cartn_x"), ("coordinate", "Cartn_y"), ("coordinate", "Cartn_z")),
    *(("occupancy", "occupancy"), ("B factor", "B_iso_or_equiv")),
)
# Chain, residue, number, insertion code and atom: the authors' names, else the PDB's.
_CIF_ADDRESS = (
    ("auth_asym_id", "label_asym_id"),
    ("auth_comp_id", "label_comp_id"),
    ("auth_seq_id", "label_seq_id"),
    ("pdbx_PDB_ins_code",),
    ("auth_atom_id", "label_atom_id"),
)
# gemmi keeps single bytes of these, which are not characters.
_CIF_NAMES = ("_atom_site.Cartn_x", "_struct_conn.conn_type_id")


def read_structure(path: str | os.PathLike[str], *, first_model: bool = True) -> gemmi.Structure:
    """Read a PDB or mmCIF file with gemmi; a missing cell is 1 Å, and serial numbers of mmCIF atoms are their rows, from 1."""
    path = Path(path)
    is_pdb = structure_format(path) == "PDB"
    contents = _contents(path)
    read = _pdb_structure if is_pdb else _cif_structure
    structure = read(path, contents, first_model)
    if not _is_cell(structure.cell):
        structure.cell = gemmi.UnitCell()
    return structure


def check_has_atoms(path: Path, structure: gemmi.Structure) -> None:
    """Raise InputError if a structure's first model has no atoms."""
    if not len(structure) or not any(len(residue) for chain in structure[0] for residue in chain):
        raise InputError(
            "no atoms were found",
            source=path,
            remedy="give a model in PDB or mmCIF format",
        )


def read_pdb_header(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a PDB file before its first atom, with question marks for invalid characters."""
    lines = []
    for line in _contents(Path(path)).decode("ascii", errors="replace").replace("\ufffd", "?").split("\n"):
        if line[:6].upper() in ("ATOM  ", "HETATM", "MODEL "):
            break
        lines.append(line.rstrip())
    return lines


def read_whole_text(path: str | os.PathLike[str]) -> str:
    """Return a file's text without an old PDB file's line numbers; bytes that are not UTF-8 are escaped."""
    text = _contents(Path(path)).decode("utf-8", errors="surrogateescape").replace("\r\n", "\n")
    return _without_line_numbers(text) if structure_format(path) == "PDB" else text


def _contents(path: Path) -> bytearray:
    check_given_file(path, "check the path of the model")
    try:
        return read_unpacked(path)
    except OSError as error:
        raise InputError(
            f"cannot be read ({error.strerror})",
            source=path,
            remedy="check the file",
        ) from None


def _pdb_structure(path: Path, contents: bytearray, first_model: bool) -> gemmi.Structure:
    # A byte for a byte, or the rest of the line would leave its columns.
    text = _without_line_numbers(contents.decode("latin-1"))
    _check_pdb(path, text, first_model)
    ascii_text = text if text.isascii() else text.encode("ascii", errors="replace").decode("ascii")
    try:
        return gemmi.read_pdb_string(ascii_text, split_chain_on_ter=True)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"cannot be read as PDB ({one_line(error)})",
            source=path,
            remedy="check the file",
        ) from None


def _without_line_numbers(text: str) -> str:
    """Return a PDB file without the entry id and line number that files before 1996 have in the columns of element and charge."""
    return _OLD_NUMBER.sub(lambda found: f"{found[1]:<72}", text)


def _check_pdb(path: Path, text: str, first_model: bool) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        record = line[:6].upper()
        if record == "ENDMDL" and first_model:
            return
        if record[:4] not in ("ATOM", "HETA"):
            continue
        line = line.rstrip("\r")
        if not (line.isascii() and line.isprintable()):
            raise InputError(
                f"line {number} has characters that a PDB file cannot have in an atom ({line.rstrip()!a})",
                source=path,
                remedy="correct it",
            )
        for what, start, stop in _PDB_NUMBERS:
            value = line[start:stop]
            is_number = _DECIMAL.fullmatch(value) is not None
            if is_number and abs(float(value)) <= LARGEST:
                continue
            if what == "coordinate" or (not value.isspace() and value):
                fields = (line[21:22], line[17:20], line[22:27], line[12:16])
                atom = " ".join(" ".join(fields).split())
                place = f"line {number}, atom {atom}"
                raise _wrong_number(
                    path, place, what, f"{value.strip()!r} in columns {start + 1}-{stop}", is_number
                )


def _wrong_number(path: Path, place: str, what: str, found: str, is_number: bool) -> InputError:
    article = "an" if what == "occupancy" else "a"
    wrong = f"{article} {what} beyond {LARGEST:g}" if is_number else f"{article} {what} that is not a number"
    return InputError(
        f"{place}, has {wrong} ({found})",
        source=path,
        remedy="correct or remove it",
    )


def _cif_structure(path: Path, contents: bytearray, first_model: bool) -> gemmi.Structure:
    document = parse_cif(path, contents)
    block = next((block for block in document if block.find_loop("_atom_site.Cartn_x")), None)
    if block is None:
        raise InputError(
            "there is no _atom_site loop",
            source=path,
            remedy="give a model in mmCIF format",
        )
    if not contents.isascii():
        _check_ascii(path, block)
    _check_cif(path, block, first_model)
    _number_rows(block)
    _complete_connections(block)
    try:
        return gemmi.make_structure_from_block(block)
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            f"cannot be read as mmCIF ({one_line(error)})",
            source=path,
            remedy="check the file",
        ) from None


def _number_rows(block: gemmi.cif.Block) -> None:
    """Set each atom's serial number to its row, by which the row is found again for writing."""
    numbers = block.find_values("_atom_site.id")
    for row in range(len(numbers)):
        numbers[row] = str(row + 1)


def _complete_connections(block: gemmi.cif.Block) -> None:
    """Add the columns of ``_struct_conn`` without which gemmi reads none of its bonds."""
    loop = block.find_loop("_struct_conn.conn_type_id").get_loop()
    is_pair = block.find_pair("_struct_conn.conn_type_id") is not None  # as with a single bond
    for name in ("id", "ptnr1_label_comp_id", "ptnr2_label_comp_id"):
        tag = f"_struct_conn.{name}"
        if loop is not None and tag not in loop.tags:
            loop.add_columns([tag], "?")
        elif is_pair and block.find_pair(tag) is None:
            block.set_pair(tag, "?")


def _check_ascii(path: Path, block: gemmi.cif.Block) -> None:
    for tag in _CIF_NAMES:
        loop = block.find_loop(tag).get_loop()
        strange = next((value for value in loop.values if not value.isascii()), None) if loop else None
        if strange is not None:
            raise InputError(
                f"{tag.partition('.')[0]} has characters that an mmCIF file cannot have in it ({strange!a})",
                source=path,
                remedy="correct it",
            )


def _check_cif(path: Path, block: gemmi.cif.Block, first_model: bool) -> None:
    loop = block.find_loop("_atom_site.Cartn_x").get_loop()
    values, width = loop.values, loop.width()
    tags = [tag.lower() for tag in loop.tags]

    def column(name: str) -> list[str] | None:
        tag = f"_atom_site.{name}".lower()
        return values[tags.index(tag) :: width] if tag in tags else None

    models = column("pdbx_PDB_model_num") if first_model else None
    checked = len(values) // width if not models else models.count(models[0])
    for what, name in _CIF_NUMBERS:
        for row, value in enumerate((column(name) or [])[:checked]):
            number = gemmi.cif.as_number(value)
            if abs(number) <= LARGEST or (what != "coordinate" and gemmi.cif.is_null(value)):
                continue
            known = (next(filter(None, map(column, names)), None) for names in _CIF_ADDRESS)
            names = [gemmi.cif.as_string(found[row]) for found in known if found]
            place = f"atom {' '.join(' '.join(names).split())}"
            raise _wrong_number(path, place, what, f"{value} in {name}", not math.isnan(number))


def _is_cell(cell: gemmi.UnitCell) -> bool:
    """Return whether a cell has a volume."""
    parameters = (cell.a, cell.b, cell.c, cell.alpha, cell.beta, cell.gamma)
    return (
        all(0 < value <= LARGEST for value in parameters) and math.isfinite(cell.volume) and cell.volume > 0
    )
