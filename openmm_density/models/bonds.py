"""The bonds of a model: standard ones, those in its file, and those inferred from distances."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import gemmi
import numpy as np
from openmm import app
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist, squareform

from ..base.errors import InputError
from .chemistry.elements import covalent_radius, is_hydrogen, is_metal
from .chemistry.monomers.library import monomer_library
from .chemistry.residue_names import standard_residue_names
from .chemistry.topologies import hydrogen_mask
from .link_chemistry import LinkChemistry
from .model import Link, Model

# A covalent bond is at most this much longer than the sum of the covalent radii (Å): inside a ligand, whose
# atoms are known to belong together; between residues, where a clash must not become a bond; to a metal.
LIGAND_BOND_SLACK = 0.45
LINK_SLACK = 0.30
METAL_BOND_SLACK = 0.60
# In a ring of three no bond is longer than by this, without carbon and with it; nor one that alone holds a ligand together.
TRIANGLE_SLACK = {False: 0.1, True: 0.25}
TORN_BOND_SLACK = 0.75
# Atoms three bonds apart are never as near as this, unless there is a bond.
CERTAIN_BOND_SLACK = 0.15

BACKBONE_BONDS = (("C", "N"), ("O3'", "P"))
"""Names of the atoms that join a residue to the next one in its polymer."""

NEAR, LONGEST_OF_STANDARD = 3.2, 2.4
"""Å: no bond is longer; between residues of proteins, DNA and RNA none is longer than two sulphurs and the slack."""
# Twenty copies of a structure on one another have 300.
MOST_NEIGHBOURS = 500

COORDINATING = frozenset({"N", "O", "S", "Se"})

_NAMED_BONDS = (gemmi.ConnectionType.Covale, gemmi.ConnectionType.Disulf, gemmi.ConnectionType.MetalC)


def named_connections(
    model: Model, structure: gemmi.Structure
) -> Iterable[tuple[gemmi.Connection, tuple[int, int]]]:
    """Yield the connections in LINK, SSBOND and _struct_conn between atoms that were read."""
    by_name: dict[tuple[str, int, str, str, str], int] = {}
    for index, record in enumerate(model.records):
        place = record.chain, record.residue_number, record.insertion_code
        # Of several atoms of one name the first is meant; a file may leave out the name of the residue.
        for residue in (record.residue_name, ""):
            by_name.setdefault((*place, residue, record.name), index)
    for connection in structure.connections:
        first, second = (
            by_name.get(
                (
                    end.chain_name.strip(),
                    end.res_id.seqid.num,
                    end.res_id.seqid.icode.strip(),
                    end.res_id.name,
                    end.atom_name,
                )
            )
            for end in (connection.partner1, connection.partner2)
        )
        if first is not None and second is not None:
            yield connection, (first, second)


def links_of_file(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> tuple[Link, ...]:
    """Return the covalent, disulphide and metal bonds in the file between conformers that were kept."""
    found: dict[tuple[frozenset[int], bool], Link] = {}
    for connection, (i, j) in connections:
        if connection.type not in _NAMED_BONDS:
            continue
        if any(
            end.altloc.strip("\0 ") and model.records[k].altloc not in ("", end.altloc)
            for end, k in ((connection.partner1, i), (connection.partner2, j))
        ):
            # It is of a conformer that was left out.
            continue
        symmetry = connection.asu == gemmi.Asu.Different
        if connection.asu == gemmi.Asu.Any and structure.cell.is_crystal():
            places = (gemmi.Position(*model.positions[k]) for k in (i, j))
            symmetry = not structure.cell.find_nearest_image(*places, gemmi.Asu.Any).same_asu()
        if i != j or symmetry:
            found.setdefault((frozenset((i, j)), symmetry), Link(i, j, symmetry))
    return tuple(found.values())


def connections_of_alternates(model: Model, structure: gemmi.Structure) -> list[gemmi.Connection]:
    """Return the file's bonds of the conformers that were not chosen; they are written with these."""
    known = {
        (record.chain, record.residue_number, record.insertion_code, record.name, record.altloc)
        for record in model.alternates.records
    }

    def is_alternate(end: gemmi.AtomAddress) -> bool:
        number = end.res_id.seqid
        altloc = end.altloc.strip("\0 ")
        return (end.chain_name.strip(), number.num, number.icode.strip(), end.atom_name, altloc) in known

    return [
        connection
        for connection in structure.connections
        if connection.type in _NAMED_BONDS
        and (is_alternate(connection.partner1) or is_alternate(connection.partner2))
    ]


def add_bonds(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> None:
    """Add bonds to a model's topology: by atom names, from its file, and by distance."""
    topology, positions = model.topology, model.positions
    _check_crowding(model)
    topology.createStandardBonds()
    bonded = {frozenset((a.index, b.index)) for a, b in topology.bonds()}
    atoms = list(topology.atoms())

    def add(i: int, j: int) -> None:
        if i != j and frozenset((i, j)) not in bonded:
            bonded.add(frozenset((i, j)))
            topology.addBond(atoms[i], atoms[j])

    for i, j in _bonds_of_file(model, structure, connections):
        add(i, j)
    for i, j in _disulphides(topology, positions):
        add(i, j)
    known = _bonds_by_name(topology, positions)
    for pairs in known.values():
        for i, j in pairs:
            add(i, j)
    near, odd = _without_triangles(atoms, positions, _near_as_bonds(topology, positions)), _is_odd(topology)
    for i, j in near:
        same, metal = atoms[i].residue is atoms[j].residue, is_metal(atoms[i]) or is_metal(atoms[j])
        told = atoms[i].residue.index in known and _is_told(atoms[i]) and _is_told(atoms[j])
        if metal or (same and not told):
            add(i, j)
    for i, j in list(_torn(topology, positions, bonded)):
        add(i, j)
    neighbours: dict[int, set[int]] = defaultdict(set)
    for a, b in topology.bonds():
        neighbours[a.index].add(b.index)
        neighbours[b.index].add(a.index)
    chemistry = LinkChemistry(atoms, positions, neighbours)
    unexplained = []
    # Those that look most like bonds use up the valences first.
    for i, j in sorted(
        (pair for pair in near if frozenset(pair) not in bonded),
        key=lambda pair: _excess(atoms, positions, *pair),
    ):
        if _continues_backbone(atoms[i], atoms[j]) or chemistry.explains(i, j):
            add(i, j)
            neighbours[i].add(j)
            neighbours[j].add(i)
        elif odd[i] or odd[j]:
            unexplained.append((i, j))
    model.short_contacts = tuple(sorted(unexplained))


def _bonds_by_name(
    topology: app.Topology, positions: np.ndarray, dictionaries: Any = ()
) -> dict[int, list[tuple[int, int]]]:
    """Return the bonds of heavy atoms that the monomer library has, by residue that the force field does not know.

    Distances tell these wrongly where a residue is badly distorted. A residue with another atom, with a bond that would be
    torn, or with other atoms at the length of a bond, is another molecule of the same name, and left out.
    """
    standard = standard_residue_names()
    odd = [each for each in topology.residues() if each.name not in standard and len(each) > 1]
    library = monomer_library({each.name for each in odd}, None, dictionaries) if odd else ()
    found = {}
    for residue in odd:
        if residue.name not in library:
            continue
        atoms = [atom for atom in residue.atoms() if _is_told(atom)]
        place = {atom.name: k for k, atom in enumerate(atoms)}
        pairs = [(place[a], place[b]) for a, b in library.bonds(residue.name, place.keys()) or ()]
        if not pairs:
            continue
        index = np.array([atom.index for atom in atoms])
        radii = np.array([covalent_radius(atom) for atom in atoms])
        excess = squareform(pdist(positions[index])) - radii[:, None] - radii
        i, j = np.array(pairs).T
        bonded = np.eye(len(index), dtype=np.int64)
        bonded[i, j] = bonded[j, i] = 1
        others = excess[bonded @ bonded == 0]  # three bonds apart and more
        if excess[i, j].max() < TORN_BOND_SLACK and others.min(initial=np.inf) > CERTAIN_BOND_SLACK:
            found[residue.index] = list(zip(index[i].tolist(), index[j].tolist()))
    return found


def _is_told(atom: app.topology.Atom) -> bool:
    """Return whether the monomer library tells what an atom is bonded to within its residue."""
    return not (is_hydrogen(atom) or is_metal(atom))


def with_bonds_of(model: Model, dictionaries: Any) -> Model:
    """Return a model in which residues have the bonds that dictionaries have for them; it itself where nothing differs."""
    known = _bonds_by_name(model.topology, model.positions, dictionaries) if dictionaries else {}
    wanted = {frozenset(pair) for pairs in known.values() for pair in pairs}
    present = {
        frozenset((a.index, b.index)): (a, b)
        for a, b in model.topology.bonds()
        if a.residue is b.residue and a.residue.index in known and _is_told(a) and _is_told(b)
    }
    if wanted == present.keys():
        return model
    topology = copy.deepcopy(model.topology)
    atoms = list(topology.atoms())
    wrong = present.keys() - wanted
    topology._bonds = [
        bond for bond in topology._bonds if frozenset((bond[0].index, bond[1].index)) not in wrong
    ]
    for i, j in sorted(map(sorted, wanted - present.keys())):
        topology.addBond(atoms[i], atoms[j])
    return replace(model, topology=topology)


def _without_triangles(
    atoms: Sequence[app.topology.Atom], positions: np.ndarray, pairs: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return pairs without long ones between neighbours of one atom, such as the oxygens of a distorted carboxylate."""
    excess = {
        (i, j): float(np.linalg.norm(positions[i] - positions[j]))
        - covalent_radius(atoms[i])
        - covalent_radius(atoms[j])
        for i, j in pairs
        if not (is_metal(atoms[i]) or is_metal(atoms[j]))
    }

    def is_long(pair: tuple[int, int]) -> bool:
        of_carbon = any(atoms[k].element is not None and atoms[k].element.symbol == "C" for k in pair)
        return excess.get(pair, 0.0) > TRIANGLE_SLACK[of_carbon]

    neighbours: dict[int, set[int]] = defaultdict(set)
    for i, j in excess:
        if not is_long((i, j)):
            neighbours[i].add(j)
            neighbours[j].add(i)
    return [(i, j) for i, j in pairs if not is_long((i, j)) or not neighbours[i] & neighbours[j]]


def _torn(
    topology: app.Topology, positions: np.ndarray, bonded: Set[frozenset[int]]
) -> Iterable[tuple[int, int]]:
    """Yield the pairs that connect the parts of a ligand, which is one molecule whatever its bond lengths."""
    standard = standard_residue_names()
    for residue in topology.residues():
        atoms = [atom for atom in residue.atoms() if not (is_hydrogen(atom) or is_metal(atom))]
        if residue.name in standard or not 1 < len(atoms) <= MOST_NEIGHBOURS:
            continue
        index = [atom.index for atom in atoms]
        radii = np.array([covalent_radius(atom) for atom in atoms])
        beyond = squareform(pdist(positions[index])) - radii[:, None] - radii
        known = np.array([[frozenset((i, j)) in bonded for j in index] for i in index])
        parts, _ = connected_components(known)
        if parts > 1:
            symbols = np.array([atom.element.symbol if atom.element is not None else "" for atom in atoms])
            oxygens = known & (symbols == "O")
            # A detached carboxylate is bonded through its carbon.
            carbons = (symbols == "C") & (known.sum(axis=1) == 2) & (oxygens.sum(axis=1) == 2)
            nearer = 0.25 * (carbons * 1.0 - oxygens[carbons].any(axis=0))
            beyond -= nearer[:, None] + nearer
            tree = minimum_spanning_tree(np.where(known, 1e-3, np.maximum(beyond, 1e-2))).tocoo()
            for i, j in zip(tree.row.tolist(), tree.col.tolist()):
                if not known[i, j] and beyond[i, j] < TORN_BOND_SLACK:
                    yield index[i], index[j]


def _excess(atoms: Sequence[app.topology.Atom], positions: np.ndarray, i: int, j: int) -> float:
    """Return by how much the distance of two atoms exceeds the sum of their covalent radii, in Å; it may be negative."""
    return abs(
        float(np.linalg.norm(positions[i] - positions[j]))
        - covalent_radius(atoms[i])
        - covalent_radius(atoms[j])
    )


def _continues_backbone(a: app.topology.Atom, b: app.topology.Atom) -> bool:
    """Return whether two atoms join consecutive residues of one polymer."""
    first, second = sorted((a, b), key=lambda atom: atom.index)
    neighbours = (
        second.residue.index == first.residue.index + 1 and first.residue.chain is second.residue.chain
    )
    return neighbours and (first.name, second.name) in BACKBONE_BONDS


def _bonds_of_file(
    model: Model, structure: gemmi.Structure, connections: list[tuple[gemmi.Connection, tuple[int, int]]]
) -> Iterable[tuple[int, int]]:
    """Yield the pairs of CONECT, LINK, SSBOND and _struct_conn that are near enough to be bonds."""
    by_serial = {record.serial: index for index, record in enumerate(model.records)}
    pairs: list[tuple[int, int]] = []
    if len(by_serial) == len(model.records):
        for first, others in structure.conect_map.items():
            pairs += [
                (by_serial[first], by_serial[other])
                for other in others
                if first in by_serial and other in by_serial
            ]
    pairs += [
        pair
        for connection, pair in connections
        if connection.asu != gemmi.Asu.Different and connection.type != gemmi.ConnectionType.Hydrog
    ]
    atoms = list(model.topology.atoms())
    far = 0
    seen: set[tuple[int, int]] = set()
    for i, j in pairs:
        key = (min(i, j), max(i, j))
        if key in seen:
            continue
        seen.add(key)
        distance = np.linalg.norm(model.positions[i] - model.positions[j])
        limit = 1.35 * (covalent_radius(atoms[i]) + covalent_radius(atoms[j]))
        # Some files list hydrogen bonds as well; other bonds may be badly strained.
        if not all(atoms[k].element is not None and atoms[k].element.symbol in ("N", "O") for k in (i, j)):
            limit = max(limit, 3.0)
        if distance < limit:
            yield key
        else:
            far += 1
    if far:
        model.notes.append(f"{far} bonds of the file join atoms that are too far apart and were left out.")


def _disulphides(topology: app.Topology, positions: np.ndarray) -> Iterable[tuple[int, int]]:
    sulphurs = [
        atom.index
        for residue in topology.residues()
        if residue.name == "CYS" and not any(atom.name == "HG" for atom in residue.atoms())
        for atom in residue.atoms()
        if atom.name == "SG"
    ]
    if len(sulphurs) < 2:
        return
    pairs = cKDTree(positions[sulphurs]).query_pairs(2.6, output_type="ndarray")
    lengths = np.linalg.norm(positions[sulphurs][pairs[:, 0]] - positions[sulphurs][pairs[:, 1]], axis=1)
    taken: set[int] = set()
    for k in np.argsort(lengths, kind="stable"):
        i, j = sulphurs[pairs[k, 0]], sulphurs[pairs[k, 1]]
        if not {i, j} & taken:
            taken |= {i, j}
            yield i, j


def _check_crowding(model: Model) -> None:
    neighbours = cKDTree(model.positions).query_ball_point(model.positions, NEAR, return_length=True) - 1
    crowded = int(neighbours.argmax())
    if neighbours[crowded] > MOST_NEIGHBOURS:
        atom = model.records[crowded].describe()
        raise InputError(
            f"atom {atom} has {neighbours[crowded]} others within {NEAR:g} Å, which is impossible",
            source=model.path,
            remedy="correct the coordinates, which are in Å, or keep only one of the models that lie on top of each other",
        )


def _near_as_bonds(topology: app.Topology, positions: np.ndarray) -> list[tuple[int, int]]:
    """Return pairs as near as bonds in and around non-standard residues, and of two standard ones.

    Inside residues and with metals these are bonds; between residues, whether they are is for chemistry to tell.
    """
    odd = _is_odd(topology)
    atoms = list(topology.atoms())
    hydrogen = hydrogen_mask(topology)
    chosen = np.flatnonzero(odd | ~hydrogen)
    pairs = cKDTree(positions[chosen]).query_pairs(
        NEAR if odd.any() else LONGEST_OF_STANDARD, output_type="ndarray"
    )
    i, j = np.sort(chosen[pairs], axis=1).T
    residue = np.array([atom.residue.index for atom in atoms])
    size = np.array([len(each) for each in topology.residues()])[residue]
    metal = np.array([is_metal(atom) for atom in atoms], dtype=bool)
    # Alkali and alkaline-earth ions sit among their neighbours by charge, not by bonds.
    ionic = np.array([is_metal(atom) and _is_ionic(atom) for atom in atoms], dtype=bool) & (size == 1)
    coordinates = np.array(
        [atom.element is not None and atom.element.symbol in COORDINATING for atom in atoms]
    )
    water = np.array([atom.residue.name == "HOH" for atom in atoms], dtype=bool)
    same, of_metal, around = residue[i] == residue[j], metal[i] | metal[j], odd[i] | odd[j]
    centre, other = np.where(metal[i], (i, j), (j, i))
    joined = np.where(
        of_metal, ~ionic[centre] & coordinates[other], ~(hydrogen[i] | hydrogen[j] | water[i] | water[j])
    )
    joined &= of_metal | ((size[i] > 1) & (size[j] > 1))
    joined = np.where(around, same | joined, ~same & (size[i] > 3) & (size[j] > 3))
    slack = np.where(of_metal, METAL_BOND_SLACK, np.where(same, LIGAND_BOND_SLACK, LINK_SLACK))
    radii = np.array([covalent_radius(atom) for atom in atoms], dtype=np.float64)
    lengths = np.linalg.norm(positions[i] - positions[j], axis=1)
    near = joined & (lengths >= 0.5) & (lengths < radii[i] + radii[j] + slack) & ~(hydrogen[i] & hydrogen[j])
    return list(zip(i[near].tolist(), j[near].tolist()))


def _is_odd(topology: app.Topology) -> np.ndarray:
    """Return which atoms are of residues that are not standard."""
    standard = standard_residue_names()
    return np.array([atom.residue.name not in standard for atom in topology.atoms()], dtype=bool)


def _is_ionic(metal: app.topology.Atom) -> bool:
    return metal.element.symbol in {"Li", "Na", "K", "Rb", "Cs", "Be", "Mg", "Ca", "Sr", "Ba"}
