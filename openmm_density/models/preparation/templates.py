"""Templates for residues that the force field does not know: adapted from known ones, else rigid."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import gemmi
import numpy as np
from openmm import app

from ...base.errors import InputError
from ...base.wording import one_line, residue_label
from ..chemistry.elements import is_hydrogen
from ..chemistry.topologies import bonded_atoms, bonded_neighbours
from ..ligand_potentials import AtomType, define_types, sphere_of_element
from .prepared import PreparationReport
from .work_residues import WorkResidue

_ACIDS = {"ASP": ("ASH", "CG"), "GLU": ("GLH", "CD")}
"""The protonated form of acidic side chains, and the carbon of their acyl group."""


def add_templates(
    forcefield: app.ForceField,
    topology: app.Topology,
    residues: list[WorkResidue],
    report: PreparationReport,
    chosen: Mapping[int, str] = MappingProxyType({}),
) -> tuple[dict[int, str], list[np.ndarray]]:
    """Add a template to a force field for every residue without a match."""
    bonded = bonded_atoms(topology)
    templates, unknown_atoms = _single_atoms(forcefield._templates, topology, bonded)
    templates |= chosen
    unmatched = _unmatched(forcefield, topology, templates, set(unknown_atoms))
    _check_polymers(topology, set(unmatched), forcefield._templates.keys())
    unknown = sorted([*unmatched, *unknown_atoms], key=lambda residue: residue.index)
    if not unknown:
        return templates, []

    xml = ElementTree.Element("ForceField")
    types = ElementTree.SubElement(xml, "AtomTypes")
    definitions = ElementTree.SubElement(xml, "Residues")
    elements: set[str] = set()
    rigid = []
    for residue in unknown:
        name = f"{residue.name}-{residue.index}-openmm-density"
        templates[residue.index] = name
        parameters = _adapted_parameters(forcefield._templates, residue, bonded)
        if parameters is None:
            rigid.append(np.array([atom.index for atom in residue.atoms()]))
            report.rigid_residues.append(f"{residue_label(residue)} ({len(residue)} atoms)")
            symbols = [atom.element.symbol for atom in residue.atoms()]
            elements.update(symbols)
            parameters = [(f"rigid-{symbol}", 0.0) for symbol in symbols]
        else:
            report.adapted_residues.append(residue_label(residue))
        definition = ElementTree.SubElement(definitions, "Residue", name=name)
        _define_residue(definition, residue, parameters, bonded)
    define_types(
        xml, types, forcefield, {f"rigid-{symbol}": _uncharged(symbol) for symbol in sorted(elements)}
    )
    forcefield.loadFile(io.StringIO(ElementTree.tostring(xml, encoding="unicode")))
    return templates, rigid


def _uncharged(symbol: str) -> AtomType:
    """Return the type of an element's uncharged atoms, whose sphere has the van der Waals radius."""
    return AtomType(symbol, 0.0, *sphere_of_element(symbol))


def _single_atoms(
    known: dict[str, Any], topology: app.Topology, bonded: dict[int, list[app.topology.Atom]]
) -> tuple[dict[int, str], list[app.topology.Residue]]:
    """Return the templates of ions by residue index, and the single-atom residues without one."""
    templates: dict[int, str] = {}
    unknown: list[app.topology.Residue] = []
    for residue in topology.residues():
        if len(residue) != 1 or residue.name == "HOH":
            continue
        # Several templates may describe single atoms of an element (FE, FE2): the name decides.
        atom = next(residue.atoms())
        template = known.get(residue.name) or known.get(residue.name.capitalize())
        fits = (
            template is not None
            and len(template.atoms) == 1
            and template.atoms[0].element is atom.element
            and not bonded[atom.index]
        )
        if fits:
            templates[residue.index] = template.name
        else:
            unknown.append(residue)
    return templates, unknown


def _check_polymers(topology: app.Topology, unmatched: set[app.topology.Residue], known: Set[str]) -> None:
    """Refuse a force field that knows none of a model's amino acids or nucleotides, not even by name."""
    for kind, belongs in (("amino acids", _is_amino_acid), ("nucleotides", _is_nucleotide)):
        members = [residue for residue in topology.residues() if belongs(residue)]
        if (
            len(members) > 1
            and set(members) <= unmatched
            and not {residue.name for residue in members} & known
        ):
            raise InputError(
                f"describes none of the {len(members)} {kind} ({residue_label(members[0])} …)",
                argument="forcefield",
                remedy="give another one; amber14 has proteins, DNA and RNA, charmm36 proteins",
            )


def _define_residue(
    definition: ElementTree.Element,
    residue: app.topology.Residue,
    parameters: list[tuple[str, float]],
    bonded: dict[int, list[app.topology.Atom]],
) -> None:
    """Write a residue's atoms, their types and charges, and their bonds into its definition."""
    atoms = list(residue.atoms())
    order = {atom.index: k for k, atom in enumerate(atoms)}
    for k, (type_, charge) in enumerate(parameters):
        ElementTree.SubElement(definition, "Atom", name=f"a{k}", type=type_, charge=repr(charge))
    for atom in atoms:
        for other in bonded[atom.index]:
            if other.residue is not residue:
                ElementTree.SubElement(definition, "ExternalBond", atomName=f"a{order[atom.index]}")
            elif other.index > atom.index:
                ends = {"atomName1": f"a{order[atom.index]}", "atomName2": f"a{order[other.index]}"}
                ElementTree.SubElement(definition, "Bond", ends)


def _is_amino_acid(residue: app.topology.Residue) -> bool:
    known = gemmi.find_tabulated_residue(residue.name)
    return known.is_standard() and known.is_amino_acid() and len(residue) > 1


def _is_nucleotide(residue: app.topology.Residue) -> bool:
    known = gemmi.find_tabulated_residue(residue.name)
    return known.is_standard() and known.is_nucleic_acid() and len(residue) > 1


def _unmatched(
    forcefield: app.ForceField,
    topology: app.Topology,
    templates: dict[int, str],
    skipped: set[app.topology.Residue],
) -> list[app.topology.Residue]:
    """Return the residues that neither a template nor a patched one (CHARMM's termini) describes; record those of others."""
    bonded, unmatched = [sorted(set(each)) for each in bonded_neighbours(topology)], []
    # OpenMM looks up templates by residue index, since 8.5 by the residue itself.
    found: dict[Any, Any] = {key: None for residue in topology.residues() for key in (residue, residue.index)}
    # Looked up once for all residues with the same atoms and bonds.
    known: dict[Any, Any] = {}
    for residue in topology.residues():
        if residue in skipped or residue.index in templates:
            continue
        graph = _graph(residue, bonded)
        if graph not in known:
            try:
                known[graph], _ = forcefield._getResidueTemplateMatches(residue, bonded)
            except Exception:  # several templates match with different parameters: none can be trusted
                known[graph] = None
        template = known[graph]
        if template is None:
            unmatched.append(residue)
        elif forcefield._templates.get(template.name) is template:
            templates[residue.index] = template.name
        found[residue] = found[residue.index] = template
    if unmatched and forcefield._patches:
        patched = list(unmatched)
        data = app.ForceField._SystemData(topology)
        try:
            unmatched = app.forcefield._applyPatchesToMatchResidues(
                forcefield, data, unmatched, found, data.bondedToAtom, False, False
            )
        except Exception as error:  # several patched templates match a residue
            raise InputError(
                f"does not determine a residue ({one_line(error)})",
                argument="forcefield",
                remedy="give another one",
            ) from None
        for residue in patched:
            # Kept by name: applying all patches to all templates takes seconds, and createSystem would do it each time.
            template = found[residue] or found[residue.index]
            if template is not None:
                templates[residue.index] = f"{residue.name}-{residue.index}-patched"
                forcefield._templates[templates[residue.index]] = template
    return unmatched


def _graph(residue: app.topology.Residue, bonded: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    """Return what decides which template matches a residue: names, elements and bonds, -1 for those to other residues."""
    place = {atom.index: k for k, atom in enumerate(residue.atoms())}
    return residue.name, *(
        (atom.name, atom.element, *[place.get(k, -1) for k in bonded[atom.index]]) for atom in residue.atoms()
    )


def _adapted_parameters(
    known: dict[str, Any],
    residue: app.topology.Residue,
    bonded: Mapping[int, Sequence[app.topology.Atom]],
) -> list[tuple[str, float]] | None:
    """Return types and charges of the residue's template if only hydrogens, neighbours or a terminus differ, else None."""
    bound = {
        atom.name
        for atom in residue.atoms()
        if any(other.residue is not residue for other in bonded[atom.index])
    }
    protein, variant = residue.name, {"HIS": ("HID", "HIE", "HIP"), "CYS": ("CYX", "CYM"), "LYS": ("LYN",)}
    stems, charged = [protein, *variant.get(protein, ())], frozenset[str]()
    if protein in _ACIDS:
        acid, carbon = _ACIDS[protein]
        stems.append(acid)
        # An amide or an ester has no charge.
        charged = {protein, *(end + protein for end in "CN")} if carbon in bound else charged
    names = {atom.name for atom in residue.atoms()}
    ends = ["C", "N", ""] if "OXT" in names else ["", "N", "C"]
    if {"H2", "H3"} & names:
        ends = ["N", "", "C"]
    candidates = [end + stem for stem in stems for end in ends]
    candidates += [protein + end for end in ("5", "3")]
    best: tuple[tuple[bool, int], list[tuple[str, float]]] | None = None
    for candidate in candidates:
        template = known.get(candidate)
        if template is None:
            continue
        called = [_name_of(template, atom) for atom in template.atoms]
        by_name = dict(zip(called, template.atoms))
        if not (names - {"OP3"} if "OP1" in by_name else names) <= set(by_name):
            continue
        missing = [atom for name, atom in by_name.items() if name not in names]
        heavy = [atom for atom in missing if not is_hydrogen(atom)]
        if not all(_is_replaced(template, atom, bound) for atom in heavy):
            continue
        charges = {name: float(atom.parameters.get("charge", 0.0)) for name, atom in by_name.items()}
        for atom in sorted(missing, key=lambda atom: not is_hydrogen(atom)):
            for neighbour in atom.bondedTo:
                if not is_hydrogen(template.atoms[neighbour]):
                    charges[called[neighbour]] += charges[_name_of(template, atom)]
        if "OP3" in names - set(by_name):
            _add_phosphate_oxygen(by_name, charges)
        parameters = [(by_name[atom.name].type, charges[atom.name]) for atom in residue.atoms()]
        if best is None or (candidate in charged, len(missing)) < best[0]:
            best = (candidate in charged, len(missing)), parameters
    if best is not None:
        _make_amides(best[1], residue, bonded, known.get("ALA"))
    return None if best is None else best[1]


def is_amide_bond(
    a: app.topology.Atom, b: app.topology.Atom, bonded: Mapping[int, Sequence[app.topology.Atom]]
) -> bool:
    """Return whether a bond joins nitrogen and the carbon of an acyl group, in either order."""
    nitrogen, carbon = (a, b) if a.element is app.element.nitrogen else (b, a)
    return (
        nitrogen.element is app.element.nitrogen
        and carbon.element is app.element.carbon
        and any(
            each.element is app.element.oxygen and len(bonded[each.index]) == 1
            for each in bonded[carbon.index]
        )
    )


def _make_amides(
    parameters: list[tuple[str, float]],
    residue: app.topology.Residue,
    bonded: Mapping[int, Sequence[app.topology.Atom]],
    peptide: Any,
) -> None:
    """Give side-chain amines bound to acyl groups the peptide's parameters; their carbon takes the remaining charge."""
    place = {atom.index: k for k, atom in enumerate(residue.atoms())}
    known = {} if peptide is None else {atom.name: atom for atom in peptide.atoms}
    for amine in residue.atoms() if {"N", "H", "CA", "HA"} <= known.keys() else ():
        near = bonded[amine.index]
        own = sorted((each for each in near if each.index in place), key=is_hydrogen)
        amide = any(each.index not in place and is_amide_bond(amine, each, bonded) for each in near)
        if amine.name == "N" or not amide or [is_hydrogen(each) for each in own] != [False, True]:
            continue
        nitrogen, carbon, hydrogen = (place[each.index] for each in (amine, *own))
        left = parameters[nitrogen][1] + parameters[hydrogen][1]
        if left > 0:  # of an ammonium ion
            left -= 1
        new = {nitrogen: "N", hydrogen: "H", carbon: "CA"}
        new |= {place[each.index]: "HA" for each in bonded[own[0].index] if is_hydrogen(each)}
        for k, name in new.items():
            charge = parameters[k][1]
            if name in ("N", "H"):
                charge = float(known[name].parameters.get("charge", 0.0))
                left -= charge
            parameters[k] = known[name].type, charge
        parameters[carbon] = parameters[carbon][0], parameters[carbon][1] + left


def _name_of(template: Any, atom: Any) -> str:
    """Return Modeller's name for an atom of a template: an N-terminus's first hydrogen is H, Amber's H1."""
    is_first = atom.name == "H1" and [template.atoms[k].name for k in atom.bondedTo] == ["N"]
    return "H" if is_first else atom.name


def _add_phosphate_oxygen(atoms: dict[str, Any], charges: dict[str, float]) -> None:
    """Add the third free oxygen of a 5' phosphate, like the others, for a total charge of -1."""
    atoms["OP3"], charges["OP3"] = atoms["OP1"], charges["OP1"]
    charges["P"] -= 1 + charges["OP1"]


def _is_replaced(template: Any, atom: Any, bound: Set[str]) -> bool:
    """Return whether a template's heavy atom has a single heavy neighbour that is bound to another residue."""
    near = [template.atoms[k] for k in atom.bondedTo if not is_hydrogen(template.atoms[k])]
    return len(near) == 1 and near[0].name in bound
