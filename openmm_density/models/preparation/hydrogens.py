"""Hydrogens: those that a residue needs, those to build, and those of the input to keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from openmm import app
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ..chemistry.elements import is_hydrogen, is_metal
from ..chemistry.hydrogen_places import Site, Surroundings, ideal_directions, units
from ..chemistry.residue_names import standard_residue_names
from ..chemistry.topologies import bonded_pairs
from ..structures import Model
from .prepared import PreparationReport
from .work_residues import Link, WorkAtom, WorkResidue, opposite, topology_of

_ANGLES = {"O": np.radians(108.5), "S": np.radians(96.0)}
_TETRAHEDRAL, _OF_WATER = np.radians([109.5, 104.5])
# Torsions to try about a bond, orientations where no bond defines any, and how often half of the sites choose again, since
# their partners may turn too.
_TURNS, _ORIENTATIONS, _SWEEPS = 24, 120, 4
# Å up to which an atom counts; kcal/mol Å² of an acceptor's attraction, from both charges and a dielectric of four times the
# distance; and kcal/mol of every atom's repulsion at the contact distance (Å).
_REACH, _ATTRACTION, _REPULSION = 5.0, 16.6, 0.3
_TO_ACCEPTOR, _TO_HYDROGEN, _TO_OTHERS = 1.8, 2.0, 2.6
# Sites that choose at once, to limit the memory.
_AT_ONCE = 500
# Å below which atoms push a hydrogen about its parent, up to which they might do so later, and the number of pushes.
_CROWDED, _NEAR, _PUSHES = 1.6, 3.0, 30


def turn(sites: Sequence[Site], lengths: np.ndarray, around: Surroundings) -> None:
    """Place the rotatable hydrogens of sites in ``around.places``, NaN before; `lengths` (N,) of their bonds in Å."""
    kinds: dict[tuple[int, str, bool], list[Site]] = defaultdict(list)
    for site in sites:
        held = len(site.hydrogens) == 1 and around.is_held(site)
        symbol = around.symbols[site.parent] if held else ""
        kinds[len(site.hydrogens), symbol, held and around.is_flat(site)].append(site)
    parts = [
        (members[k : k + _AT_ONCE], symbol, is_flat)
        for (_, symbol, is_flat), members in kinds.items()
        for k in range(0, len(members), _AT_ONCE)
    ]
    symbols = np.array(around.symbols)
    accepts = (symbols == "O") | ((symbols == "N") & (around.degrees <= 2))
    contacts = np.where(accepts, _TO_ACCEPTOR, np.where(symbols == "H", _TO_HYDROGEN, _TO_OTHERS))
    attraction = np.where(accepts, _ATTRACTION, 0.0)
    moving = np.array([k for site in sites for k in site.hydrogens], dtype=np.int64)
    still = _Near(around.places, np.arange(len(around.places)))
    for sweep in range(_SWEEPS):
        for members, symbol, is_flat in parts:
            # All at first, then each half in turn.
            some = members[sweep % 2 :: 2] if sweep else members
            if some:
                bonds = lengths[[site.parent for site in some]][:, None, None, None]
                ways = bonds * _directions(some, symbol, is_flat, around)
                near = still, _Near(around.places, moving)
                _choose(some, ways, around.places, near, contacts, attraction)


class _Near:
    """Some atoms of those that have a place, to find those near others."""

    def __init__(self, places: np.ndarray, atoms: np.ndarray) -> None:
        self._atoms = atoms[np.isfinite(places[atoms]).all(axis=1)]
        self._tree = cKDTree(places[self._atoms])

    def pairs(self, places: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of places (P, 3) and atoms within a reach (Å) of each other."""
        near = self._tree.query_ball_point(places, reach)
        counts = np.array([len(each) for each in near])
        return np.repeat(np.arange(len(places)), counts), self._atoms[np.concatenate(near).astype(int)]


def _directions(sites: Sequence[Site], symbol: str, is_flat: bool, around: Surroundings) -> np.ndarray:
    """Return the possible orientations of hydrogens, as unit vectors of shape (sites, orientations, hydrogens, 3)."""
    if symbol:
        turns = np.array([0.0, np.pi]) if is_flat else np.linspace(0.0, 2 * np.pi, _TURNS, endpoint=False)
        return around.turned(sites, _ANGLES.get(symbol, _TETRAHEDRAL), turns)[:, :, None]
    count = len(sites[0].hydrogens)
    angle = _OF_WATER if count == 2 else _TETRAHEDRAL
    turns = 2 * np.pi * np.arange(count - 1) / max(count - 1, 1)
    ring = np.stack([np.cos(turns), np.sin(turns), np.full(count - 1, 1 / np.tan(angle))], axis=1)
    own = np.concatenate([[[0.0, 0.0, 1.0]], np.sin(angle) * ring])
    # Normally distributed quaternions are uniform rotations; SciPy's generator changes its arguments between versions.
    orientations = Rotation.from_quat(np.random.default_rng(0).normal(size=(_ORIENTATIONS, 4)))
    ways = (orientations.as_matrix() @ own.T).transpose(0, 2, 1)
    return np.broadcast_to(ways, (len(sites), *ways.shape))


def _choose(
    sites: Sequence[Site],
    ways: np.ndarray,
    places: np.ndarray,
    near: Sequence[_Near],
    contacts: np.ndarray,
    attraction: np.ndarray,
) -> None:
    """Place the hydrogens of sites that do not interact with each other in the best orientation."""
    parents = np.array([site.parent for site in sites])
    own = np.array([site.hydrogens for site in sites])
    of, others = np.concatenate([each.pairs(np.nan_to_num(places[parents]), _REACH) for each in near], axis=1)
    counted = (others != parents[of]) & (others[:, None] != own[of]).all(axis=1)
    of, others = of[counted], others[counted]
    tried = places[parents][:, None, None] + ways
    apart = tried[of] - places[others][:, None, None]
    squared = np.maximum(np.einsum("pwhi,pwhi->pwh", apart, apart), 0.25)
    energy = _REPULSION * (contacts[others][:, None, None] ** 2 / squared) ** 6
    energy -= attraction[others][:, None, None] / squared
    totals = np.zeros(ways.shape[:2])
    np.add.at(totals, of, energy.sum(axis=2))
    places[own] = np.take_along_axis(tried, totals.argmin(axis=1)[:, None, None, None], axis=1)[:, 0]


def part_crowded(sites: Sequence[Site], places: np.ndarray) -> None:
    """Move hydrogens away from atoms within `_CROWDED`, as far as their bonds allow."""
    hydrogens = np.array([k for site in sites for k in site.hydrogens], dtype=np.int64)
    parents = np.repeat([site.parent for site in sites], [len(site.hydrogens) for site in sites]).astype(int)
    if not len(hydrogens) or not np.isfinite(places).all():
        return
    owner = np.arange(len(places))
    owner[hydrogens] = parents
    near = _Near(places, np.arange(len(places)))
    of, others = near.pairs(places[hydrogens], _CROWDED)
    crowded = np.unique(of[owner[others] != parents[of]])
    if not len(crowded):
        return
    hydrogens, parents = hydrogens[crowded], parents[crowded]
    of, others = near.pairs(places[hydrogens], _NEAR)
    kept = owner[others] != parents[of]
    of, others = of[kept], others[kept]
    lengths = np.linalg.norm(places[hydrogens] - places[parents], axis=1)[:, None]
    for _ in range(_PUSHES):
        apart = places[hydrogens][of] - places[others]
        distances = np.linalg.norm(apart, axis=1)
        pushes = np.zeros((len(hydrogens), 3))
        depth = np.maximum(_CROWDED - distances, 0.0) / np.maximum(distances, _CROWDED / 10)
        np.add.at(pushes, of, 0.5 * depth[:, None] * apart)
        if not pushes.any():
            break
        places[hydrogens] = places[parents] + lengths * units(places[hydrogens] + pushes - places[parents])


BOND_LENGTHS = {"C": 1.09, "N": 1.01, "O": 0.96, "S": 1.34}
"""Å from a hydrogen to an atom of an element."""
_OTHER_LENGTH = 1.0
# For a histidine's hydrogen bond: Å between nitrogen and acceptor, the cosine of the largest bend, and the pH up to which both
# nitrogens have a hydrogen.
_HYDROGEN_BOND, _STRAIGHT, _HIS_PH = 3.5, np.cos(np.radians(50.0)), 6.5
# Å: distances of one atom's hydrogens that differ by less count as equal; and the reach of heavy atoms' bonds.
_AS_NEAR, _BONDED = 0.2, 1.8


def find_variants(
    model: Model, residues: list[WorkResidue], links: list[Link], known: Sequence[Set[str]]
) -> list[str | None]:
    """Return each residue's protonation state where the input or a bond decides it; None leaves it to the pH."""
    variants: list[str | None] = [None] * len(residues)
    metals: dict[int, set[str]] = defaultdict(set)
    bonds: dict[int, set[str]] = defaultdict(set)
    for (a, name_a), (b, name_b) in links:
        if a == b:
            continue
        bonds[a].add(name_a)
        bonds[b].add(name_b)
        for (own, own_name), (other, other_name) in (((a, name_a), (b, name_b)), ((b, name_b), (a, name_a))):
            if is_metal(residues[other].find(other_name)):
                metals[own].add(own_name)
    for k, residue in enumerate(model.topology.residues()):
        names = {atom.name for atom in residue.atoms()} | known[k]
        has_hydrogens = any(is_hydrogen(atom) for atom in residue.atoms())
        original = model.records[next(residue.atoms()).index].residue_name
        if residue.name == "HIS":
            if metals[k] & {"NE2", "ND1"}:
                variants[k] = {("NE2",): "HID", ("ND1",): "HIE"}.get(
                    tuple(sorted(metals[k] & {"NE2", "ND1"})), "HIN"
                )
            elif names & {"HD1", "HE2"}:
                variants[k] = "HIP" if {"HD1", "HE2"} <= names else ("HID" if "HD1" in names else "HIE")
            else:
                variants[k] = {"HSD": "HID", "HSE": "HIE", "HSP": "HIP"}.get(
                    original, original if original in ("HID", "HIE", "HIP") else None
                )
        elif residue.name == "ASP":
            if "HD2" in names or (original == "ASH" and not has_hydrogens):
                variants[k] = "ASH"
        elif residue.name == "GLU":
            if "HE2" in names or (original == "GLH" and not has_hydrogens):
                variants[k] = "GLH"
        elif residue.name == "LYS":
            stripped = {"HZ1", "HZ2"} <= names and "HZ3" not in names
            if "NZ" in bonds[k] or stripped or original == "LYN":
                variants[k] = "LYN"
        elif residue.name == "CYS" and "SG" in metals[k] | bonds[k]:
            variants[k] = "CYX"
    return variants


def add_hydrogens(
    residues: list[WorkResidue], links: list[Link], variants: list[str | None], ph: float
) -> None:
    """Add the hydrogens of residues' protonation states at ideal positions; rotatable ones avoid clashes."""
    topology, _ = topology_of(residues, links)
    bonded: dict[int, list[int]] = defaultdict(list)
    for first, second in bonded_pairs(topology).tolist():
        bonded[first].append(second)
        bonded[second].append(first)
    needed = _needed(residues, _with_histidines(residues, variants, bonded, ph), bonded, ph)
    atoms = [atom for residue in residues for atom in residue.atoms]
    built: dict[int, list[WorkAtom]] = {}
    sites, nowhere = [], np.full(3, np.nan)
    for parent, names in needed.items():
        built[parent] = [WorkAtom(name, app.element.hydrogen, nowhere) for name in names]
        first = len(atoms)
        atoms += built[parent]
        sites.append(Site(parent, range(first, len(atoms)), bonded[parent]))
    _place(sites, atoms, bonded)
    index = 0
    for residue in residues:
        own = range(index, index + len(residue.atoms))
        index = own.stop
        residue.atoms = [each for k, atom in zip(own, residue.atoms) for each in (atom, *built.get(k, ()))]


def _place(sites: list[Site], atoms: list[WorkAtom], bonded: dict[int, list[int]]) -> None:
    """Place the hydrogens of sites."""
    places = np.array([atom.position for atom in atoms])
    degrees = np.array([len(bonded[k]) if k in bonded else 0 for k in range(len(atoms))])
    for site in sites:
        degrees[site.parent] += len(site.hydrogens)
    symbols = ["" if atom.element is None else atom.element.symbol for atom in atoms]
    around = Surroundings(places, symbols, bonded, degrees)
    lengths = np.array([BOND_LENGTHS.get(symbol, _OTHER_LENGTH) for symbol in symbols])
    wedged: set[int] = set()
    for members, directions in ideal_directions(sites, around):
        parents = [site.parent for site in members]
        wedged.update(parents)
        own = np.array([site.hydrogens for site in members])
        places[own] = places[parents][:, None] + lengths[parents][:, None, None] * directions
    turn([site for site in sites if site.parent not in wedged], lengths, around)
    part_crowded(sites, places)
    for site in sites:
        for k in site.hydrogens:
            atoms[k].position = places[k].copy()


def _needed(
    residues: list[WorkResidue],
    variants: Sequence[str | None],
    bonded: dict[int, list[int]],
    ph: float,
) -> dict[int, list[str]]:
    """Return the names of missing hydrogens by the index of the atom that carries them."""
    app.Modeller._loadStandardHydrogenDefinitions()
    known = app.Modeller._residueHydrogens
    first = 0
    needed: dict[int, list[str]] = {}
    atoms = [atom for residue in residues for atom in residue.atoms]
    for k, residue in enumerate(residues):
        is_first = k == 0 or residues[k - 1].chain != residue.chain
        is_last = k + 1 == len(residues) or residues[k + 1].chain != residue.chain
        ends = {end for end, is_end in (("N", is_first), ("C", is_last)) if is_end} or {"-"}
        for_parent: dict[str, list[str]] = defaultdict(list)
        for each in known[residue.name].hydrogens if residue.name in known and _has_ring(residue) else ():
            of_variant = each.variants is not None and variants[k] in each.variants
            if not (of_variant or (ph <= each.maxph and (variants[k] is None or each.variants is None))):
                continue
            if each.terminal is None or ends & set(each.terminal):
                for_parent[each.parent].append(each.name)
        # Modeller caps the first nucleotide of a chain even where a phosphate already sits on its O5'.
        if "O5'" in for_parent and residue.find("P") is not None:
            del for_parent["O5'"]
        for index, atom in enumerate(residue.atoms, first):
            expected = for_parent.get(atom.name, []) if not is_hydrogen(atom) else []
            there = (
                [atoms[other].name for other in bonded[index] if is_hydrogen(atoms[other])]
                if expected
                else []
            )
            missing = [name for name in expected if name not in there]
            missing = missing[: max(len(expected) - len(there), 0)]
            if missing:
                needed[index] = missing
        first += len(residue.atoms)
    return needed


def _has_ring(residue: WorkResidue) -> bool:
    """Return False for a histidine whose ring nitrogens are missing and could not be completed."""
    return residue.name != "HIS" or None not in (residue.find("ND1"), residue.find("NE2"))


def _with_histidines(
    residues: list[WorkResidue],
    variants: Sequence[str | None],
    bonded: dict[int, list[int]],
    ph: float,
) -> list[str | None]:
    """Return variants with bridged cysteines, and Modeller's histidines: on Nε where only that forms a bond, else on Nδ."""
    chosen = list(variants)
    owners = np.repeat(np.arange(len(residues)), [len(residue.atoms) for residue in residues])
    first = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(residues)))])
    places = np.array([atom.position for residue in residues for atom in residue.atoms])
    elements = [atom.element for residue in residues for atom in residue.atoms]
    accepts = np.flatnonzero([each in (app.element.oxygen, app.element.nitrogen) for each in elements])
    tree = cKDTree(places[accepts]) if len(accepts) and np.isfinite(places).all() else None

    def is_bonded(k: int, name: str) -> bool:
        index = first[k] + next(n for n, atom in enumerate(residues[k].atoms) if atom.name == name)
        hydrogen = opposite(places[index], places[bonded[index]], 1.0)
        near = [] if tree is None else accepts[tree.query_ball_point(places[index], _HYDROGEN_BOND)]
        to = places[[other for other in near if owners[other] != k]] - hydrogen
        cosines = units(to) @ (hydrogen - places[index])
        return bool((cosines > _STRAIGHT).any())

    for k, residue in enumerate(residues):
        if chosen[k] is not None or residue.name not in ("CYS", "HIS"):
            continue
        if residue.name == "CYS":
            sulfurs = [n for n in range(first[k], first[k + 1]) if elements[n] is app.element.sulfur]
            if len(sulfurs) == 1 and any(owners[other] != k for other in bonded[sulfurs[0]]):
                chosen[k] = "CYX"
        elif ph <= _HIS_PH:
            chosen[k] = "HIP"
        elif _has_ring(residue):
            chosen[k] = "HIE" if is_bonded(k, "NE2") and not is_bonded(k, "ND1") else "HID"
    return chosen


def remove_replaced_hydrogens(residues: list[WorkResidue], links: list[Link]) -> None:
    """Remove hydrogens replaced by a bond to another residue: all but an amide's on backbone N, one on other atoms."""
    standard = standard_residue_names()
    for first, second in links:
        if first[0] == second[0]:
            continue
        for (own, name), (other, other_name) in ((first, second), (second, first)):
            if residues[own].name not in standard:
                continue
            parent, partner = residues[own].find(name), residues[other].find(other_name)
            if is_metal(partner) or is_metal(parent):
                continue
            if name == "N" and residues[own].find("CA") is not None:
                _make_amide(residues[own], partner)
                continue
            hydrogens = [
                atom
                for atom in residues[own].atoms
                if is_hydrogen(atom) and np.linalg.norm(atom.position - parent.position) < 1.5
            ]
            if hydrogens:
                _replace_nearest(residues[own], parent, partner, hydrogens)


def _replace_nearest(
    residue: WorkResidue, parent: WorkAtom, partner: WorkAtom, hydrogens: list[WorkAtom]
) -> None:
    """Remove the hydrogen nearest to the atom bound instead, of several the last by name; one left on a flat N is in plane."""
    distances = [np.linalg.norm(atom.position - partner.position) for atom in hydrogens]
    nearest = [atom for atom, d in zip(hydrogens, distances) if d < min(distances) + _AS_NEAR]
    removed = max(nearest, key=lambda atom: atom.name)
    residue.atoms.remove(removed)
    left = [atom for atom in hydrogens if atom is not removed]
    others = [
        atom.position
        for atom in residue.atoms
        if not is_hydrogen(atom) and 0.0 < np.linalg.norm(atom.position - parent.position) < _BONDED
    ]
    if parent.element is app.element.nitrogen and len(left) == 1 and len(others) == 1:
        left[0].position = opposite(parent.position, [*others, partner.position], BOND_LENGTHS["N"])


def _make_amide(residue: WorkResidue, partner: WorkAtom) -> None:
    """Leave one hydrogen, in the amide plane, on an N bound to another residue; none on proline's."""
    extra = {"H2", "H3", "H"} if residue.name == "PRO" else {"H2", "H3"}
    residue.atoms = [atom for atom in residue.atoms if atom.name not in extra]
    hydrogen = residue.find("H")
    if hydrogen is not None:
        nitrogen, alpha = residue.find("N").position, residue.find("CA").position
        hydrogen.position = opposite(nitrogen, [alpha, partner.position], BOND_LENGTHS["N"])


def keep_input_hydrogens(
    model: Model, residues: list[WorkResidue], parametrised: frozenset[int], report: PreparationReport
) -> None:
    """Match the input's hydrogens with the built ones, by name, then by parent; built ones take the input's positions."""
    standard = standard_residue_names()
    for work, residue in zip(residues, model.topology.residues(), strict=True):
        if work.name not in standard and residue.index not in parametrised:
            continue
        given = [atom for atom in residue.atoms() if is_hydrogen(atom)]
        built = {atom.name: atom for atom in work.atoms if is_hydrogen(atom)}
        heavy = [atom for atom in work.atoms if not is_hydrogen(atom)]
        places = np.array([atom.position for atom in heavy])

        def parent(position: np.ndarray, places: np.ndarray = places) -> int:
            return int(np.argmin(np.linalg.norm(places - position, axis=1)))

        if not given or not heavy:
            report.dropped_hydrogens += [model.records[atom.index].describe() for atom in given]
            continue
        matches: list[tuple[Any, WorkAtom]] = []
        left = []
        for atom in given:
            twin = built.get(atom.name)
            if twin is not None and parent(twin.position) == parent(model.positions[atom.index]):
                matches.append((atom, built.pop(atom.name)))
            else:
                left.append(atom)
        for atom in left:
            own = parent(model.positions[atom.index])
            rivals = [twin for twin in built.values() if parent(twin.position) == own]
            if rivals:
                position = model.positions[atom.index]
                twin = min(rivals, key=lambda rival: np.linalg.norm(rival.position - position))
                matches.append((atom, built.pop(twin.name)))
            else:
                report.dropped_hydrogens.append(model.records[atom.index].describe())
        for atom, twin in matches:
            twin.source = atom.index
            position = model.positions[atom.index]
            if 0.7 < np.linalg.norm(position - places[parent(position)]) < 1.6:
                twin.position = position
