"""Residue types from dictionaries: the user's restraint dictionaries and wwPDB component files, and haem."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import gemmi

from ....base.cif_files import read_cif
from ....base.errors import InputError
from ....base.given_files import check_given_file
from .flat_groups import AROMATIC, UNKNOWN_ORDER
from .residue_tables import canonical_name


@dataclass
class Component:
    """One residue type of a dictionary; `is_restraint`: its list of planes is complete; else planes follow from its bonds."""

    source: str
    elements: dict[str, str]
    bonds: dict[tuple[str, str], float]
    planes: dict[str, list[tuple[str, float | None]]]
    is_restraint: bool = False

    def element(self, atom: str) -> str:
        """Return an atom's element; from its name where the file lists only bonds."""
        return self.elements.get(atom) or (
            "H" if canonical_name(atom)[0] == "H" else gemmi.Element(atom[0]).name
        )


_ORDER_OF_WORD = {"sing": 1.0, "doub": 2.0, "trip": 3.0, "arom": 1.5, "delo": 1.5}
_REMEDY = "give a restraint dictionary or a wwPDB component file"


def read_dictionary(path: str | os.PathLike[str]) -> dict[str, Component]:
    """Read the flat groups and bonds of every component in a restraint dictionary or wwPDB component file."""
    source = os.fspath(path)
    check_given_file(source, _REMEDY)
    try:
        document = read_cif(source)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", source=source, remedy=_REMEDY) from None
    components: dict[str, Component] = {}
    for block in document:
        _read_bonds(block, source, components)
        _read_planes(block, source, components)
    for name, found in components.items():
        for plane, members in found.planes.items():
            unknown = [atom for atom, _ in members if found.elements and atom not in found.elements]
            if unknown:
                raise InputError(
                    f"plane {plane} must have atoms of {name} only",
                    source=source,
                    found=unknown[0],
                    remedy="correct the dictionary",
                )
    if not components:
        raise InputError(
            "must hold _chem_comp_atom, _chem_comp_bond or _chem_comp_plane_atom",
            source=source,
            found="none of them",
            remedy=_REMEDY,
        )
    return components


def _read_bonds(block: gemmi.cif.Block, source: str, components: dict[str, Component]) -> None:
    """Add the elements and bonds of a block's components."""
    for name, atom, element in _rows(block, "_chem_comp_atom.", "comp_id", "atom_id", "type_symbol"):
        symbol = gemmi.Element("H" if element == "D" else element).name
        _component(components, name, source).elements[atom] = symbol
    ends = ("comp_id", "atom_id_1", "atom_id_2")
    kinds = ("?type", "?value_order", "?aromatic", "?pdbx_aromatic_flag", "?value_dist")
    for row in _rows(block, "_chem_comp_bond.", *ends, *kinds):
        name, first, second, kind, order, aromatic, flag, distance = row
        is_aromatic = (aromatic or flag).lower() in ("y", "yes", "1")
        component = _component(components, name, source)
        component.bonds[first, second] = (
            AROMATIC if is_aromatic else _ORDER_OF_WORD.get((kind or order).lower()[:4], UNKNOWN_ORDER)
        )
        if distance:
            component.is_restraint = True


def _read_planes(block: gemmi.cif.Block, source: str, components: dict[str, Component]) -> None:
    """Add the planes of a block's components."""
    table = "_chem_comp_plane_atom."
    if block.find_values(f"{table}atom_id") and not block.find(table, ["comp_id", "plane_id", "atom_id"]):
        raise InputError(
            f"_chem_comp_plane_atom in block {block.name} lacks comp_id or plane_id",
            source=source,
            remedy="complete the table",
        )
    for name, plane, atom, esd in _rows(block, table, "comp_id", "plane_id", "atom_id", "?dist_esd"):
        component = _component(components, name, source)
        component.is_restraint = True
        sigma = _dictionary_sigma(esd, source, name, plane, atom)
        component.planes.setdefault(plane, []).append((atom, sigma))


def _component(components: dict[str, Component], name: str, source: str) -> Component:
    return components.setdefault(name, Component(source, {}, {}, {}))


def _rows(block: gemmi.cif.Block, category: str, *tags: str) -> Iterator[list[str]]:
    for row in block.find(category, list(tags)):
        yield [gemmi.cif.as_string(row[i]) if row.has(i) else "" for i in range(len(tags))]


def _dictionary_sigma(esd: str, source: str, component: str, plane: str, atom: str) -> float | None:
    if not esd:
        return None
    value = gemmi.cif.as_number(esd)
    if not (math.isfinite(value) and value > 0):
        raise InputError(
            f"dist_esd of atom {atom} in plane {plane} of {component} must be positive",
            source=source,
            found=f"{esd:.60}",
            remedy="give Å, such as 0.02",
        )
    return value


def _haem(vinyl: float) -> Component:
    """Return haem; ``vinyl`` is the order of the bond that is single where cysteines are bound (haem c)."""
    bonds = {}
    substituents = {"A": ("CAA", "CMA"), "B": ("CMB", "CAB"), "C": ("CMC", "CAC"), "D": ("CMD", "CAD")}
    for ring, before in zip("ABCD", "DABC"):
        members = (f"N{ring}", *(f"C{number}{ring}" for number in "1234"))
        bonds.update(((a, b), AROMATIC) for a, b in zip(members, (*members[1:], members[0])))
        bonds.update(((f"C{k}{ring}", atom), 1.0) for k, atom in zip("23", substituents[ring]))
        bonds[f"C4{before}", f"CH{ring}"] = bonds[f"CH{ring}", f"C1{ring}"] = AROMATIC
        bonds[f"CH{ring}", f"HH{ring}"] = 1.0
    for ring in "BC":
        bonds |= {(f"CA{ring}", f"CB{ring}"): vinyl, (f"CA{ring}", f"HA{ring}"): 1.0}
        bonds |= {(f"CB{ring}", f"HB{ring}"): 1.0, (f"CB{ring}", f"HB{ring}A"): 1.0}
    for ring in "AD":
        bonds[f"CA{ring}", f"CB{ring}"] = bonds[f"CB{ring}", f"CG{ring}"] = 1.0
        bonds[f"CG{ring}", f"O1{ring}"] = bonds[f"CG{ring}", f"O2{ring}"] = AROMATIC
    return Component("haem", {"FE": "Fe"}, bonds, {})


HAEMS = {"HEM": _haem(2.0), "HEME": _haem(2.0), "HEC": _haem(1.0)}
