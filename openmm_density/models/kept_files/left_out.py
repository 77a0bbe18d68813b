"""Sentences on what the written file omits from the input file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import gemmi

from ...base.wording import counted, listing
from ..metadata import remark_number
from .cif_atoms import DISPLACED
from .pdb_lines import COORDINATES

_WHY = {
    "SIGATM": "the atoms moved or have other B factors",
    "SIGUIJ": "the atoms moved or have other B factors",
    "CISPEP": "these peptides are not cis",
    "SSBOND": "they lead to copies by symmetry, and the model is in no crystal",
    "LINK": "they lead to copies by symmetry, and the model is in no crystal",
    "CRYST1": "the model was laid elsewhere, or is in water",
    "ORIGX": "the model was laid elsewhere",
    "SCALE": "the model was laid elsewhere",
    "MTRIX": "the model was laid elsewhere",
}
_STALE = "Left out of the written model, as they describe the model before the fit, or its place"
_OF_ATOMS = frozenset(
    (*COORDINATES, "MODEL", "ENDMDL", "NUMMDL", "TER", "END", "MASTER", "ANISOU", "REMARK", "")
)


def left_out_of_pdb(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return what one PDB file's lines have and another's lack, atoms apart, in a sentence for each kind."""
    records = [Counter(_kind(line) for line in lines) for lines in (before, after)]
    lost = records[0] - records[1]
    sentences = _displacements(lost["ANISOU"], "ANISOU")
    remarks = [
        {remark_number(line) for line in lines if line.startswith("REMARK")} for lines in (before, after)
    ]
    numbers = sorted(number for number in remarks[0] - remarks[1] if number is not None)
    if numbers:
        sentences.append(f"{_STALE}: REMARK {listing(list(map(str, numbers)))}.")
    for name, count in lost.items():
        if name not in _OF_ATOMS:
            why = _WHY.get(name, "they describe the model before the fit")
            sentences.append(
                f"{counted(count, 'line')} of {name} of the input {_are(count)} left out: {why}."
            )
    return sentences


def left_out_of_cif(before: gemmi.cif.Block, after: gemmi.cif.Block) -> list[str]:
    """Return what one mmCIF block has and another lacks, atoms apart, in a sentence for each kind."""
    sentences = _displacements(_displaced(before) - _displaced(after), "Anisotropic displacement")
    names = [block.get_mmcif_category_names() for block in (before, after)]
    lost = [name for name in names[0] if name not in names[1] and name != "_atom_site_anisotrop."]
    items = [len(block.get_mmcif_category("_refine.")) for block in (before, after)]
    if items[1] and items[1] < items[0]:
        lost.append(f"{items[0] - items[1]} items of _refine")
    if lost:
        sentences.append(f"{_STALE}: {listing([name.rstrip('.') for name in lost])}.")
    return sentences


def _kind(line: str) -> str:
    record = line[:6].strip().upper()
    return record.rstrip("123") if record[:5] in ("ORIGX", "SCALE", "MTRIX") else record


def _displaced(block: gemmi.cif.Block) -> int:
    """Return the number of atoms with anisotropic displacements."""
    apart = len(block.find_values("_atom_site_anisotrop.id"))
    loop = block.find_loop("_atom_site.Cartn_x").get_loop()
    name = next((tag for tag in loop.tags if tag.partition(".")[2].startswith(DISPLACED)), None)
    inside = [] if name is None else [value for value in block.find_values(name) if value not in "?."]
    return apart + len(inside)


def _displacements(count: int, what: str) -> list[str]:
    if count <= 0:
        return []
    return [
        f"{what} of {counted(count, 'atom')} is left out: the {'atom' if count == 1 else 'atoms'} moved, or had a new B factor."
    ]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
