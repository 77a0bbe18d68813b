"""The names of residues and atoms that OpenMM knows, and other programs' names for them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from xml.etree import ElementTree

from openmm import app

CHARMM_ALIASES = {"HSE": "HIS", "HSC": "HIS", "HIN": "HIS", "CYM": "CYS", "CYS2": "CYS", "LYN": "LYS"}
WATER_ALIASES = {"TIP4": "HOH", "TP4": "HOH", "SPC": "HOH", "DOD": "HOH"}


@lru_cache(maxsize=1)
def name_tables() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return OpenMM's tables of alternative names: of residues, and of the atoms of each residue."""
    tree = ElementTree.parse(Path(app.__file__).parent / "data" / "pdbNames.xml")
    shared: dict[str, dict[str, str]] = {}
    residues: dict[str, str] = {}
    atoms: dict[str, dict[str, str]] = {}
    for residue in tree.getroot().iter("Residue"):
        own = {
            other: atom.attrib["name"]
            for atom in residue.iter("Atom")
            for key, other in atom.attrib.items()
            if key != "name"
        }
        name = residue.attrib["name"]
        if name in ("All", "Protein", "Nucleic"):
            shared[name] = own
            continue
        atoms[name] = {**shared["All"], **shared.get(residue.attrib.get("type", ""), {}), **own}
        for key, other in residue.attrib.items():
            if key not in ("name", "type"):
                residues[other] = name
    return {**residues, **CHARMM_ALIASES, **WATER_ALIASES}, atoms


@lru_cache(maxsize=1)
def standard_residue_names() -> frozenset[str]:
    """Return the names of the residues whose bonds OpenMM knows: amino acids, nucleotides, caps, water."""
    app.Topology().createStandardBonds()
    return frozenset(app.Topology._standardBonds)


def is_standard_polymer(name: str) -> bool:
    """Return whether a residue of this name is a standard amino acid, nucleotide or cap."""
    return name in standard_residue_names() and name != "HOH"
