"""The parts of a System for ligands with their own potential: its force, constraints, and idle springs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ..chemistry.elements import covalent_radius, is_hydrogen, is_metal
from ..chemistry.ideal_geometry import angles_at, lengths_of
from ..chemistry.topologies import bonded_neighbours
from ..chemistry.torsions import torsion_angles
from ..ligand_potentials import PlacedPotential

IDLE_SPRINGS = "HeldLigands"
"""Name of the force that can hold ligands, at first with constants of 0. It also shows OpenMM which atoms form a molecule."""

POTENTIAL = "LigandPotential"
"""Name of the force of each ligand."""

BOND_LENGTHS, IMPOSSIBLE = (0.85, 1.15), (0.72, 1.3)
"""The range of bond lengths in units of the sum of covalent radii: triple bonds have 0.77."""

CARBOXYLATE, CARBOXYLATE_ANGLES = (1.52, 1.25, 125.0), (100.0, 138.0)
"""Å of a carboxylate's bonds to carbon and to oxygens, degrees between these; and the range of its angles in a model, degrees."""

TWISTED = np.radians(40.0)
"""The deviation from flatness that no amide has: springs that keep it and planarity would together distort it."""

_NM_PER_ANGSTROM = 0.1
# OpenMM's name for it.
_ONE_FOUR = "LennardJones14"


def add_potentials(
    system: openmm.System, potentials: Iterable[PlacedPotential], first: Sequence[int]
) -> None:
    """Add the potentials of ligands to a System."""
    count = system.getNumParticles()
    for placed in of_copies(potentials, first):
        force = placed.potential.create_force(placed.atoms, count, placed.parameter_name)
        force.setName(POTENTIAL)
        system.addForce(force)


def of_copies(potentials: Iterable[PlacedPotential], first: Sequence[int]) -> list[PlacedPotential]:
    """Return the potentials of all copies of a model in a System, copy by copy, each with its own parameter."""
    if len(first) == 1:
        return [replace(placed, atoms=placed.atoms + first[0]) for placed in potentials]
    return [
        replace(placed, atoms=placed.atoms + begin, parameter_name=f"{placed.parameter_name}_of_{number}")
        for number, begin in enumerate(first, start=1)
        for placed in potentials
    ]


def constrain_hydrogens(system: openmm.System, placed: PlacedPotential) -> None:
    """Constrain the bonds of a ligand's hydrogens to the conformer at rest: otherwise they need short time steps."""
    known = placed.potential
    for a, b in known.bonds:
        if "H" in (known.elements[a], known.elements[b]):
            length = float(np.linalg.norm(known.positions[a] - known.positions[b]))
            system.addConstraint(int(placed.atoms[a]), int(placed.atoms[b]), length * _NM_PER_ANGSTROM)


def remove_inner_terms(system: openmm.System, placed: PlacedPotential) -> None:
    """Remove CHARMM's interactions between a ligand's atoms that are three bonds apart from a System."""
    own = {int(index) for index in placed.atoms}
    for force in system.getForces():
        if isinstance(force, openmm.CustomBondForce) and force.getName() == _ONE_FOUR:
            for number in range(force.getNumBonds()):
                i, j, parameters = force.getBondParameters(number)
                if i in own and j in own:
                    force.setBondParameters(number, i, j, [0.0] * len(parameters))


def mended_ends(
    topology: app.Topology, positions: np.ndarray, rigid: Iterable[np.ndarray]
) -> dict[int, np.ndarray]:
    """Return corrected positions, by atom in Å, for impossible ends of rigid residues at positions (N, 3) in Å.

    These are terminal atoms with an impossible bond length, carboxylates with such a bond or angle, and twisted acetamides.
    """
    members = {int(index) for atoms in rigid for index in atoms}
    atoms = list(topology.atoms())
    symbols = ["" if atom.element is None else atom.element.symbol for atom in atoms]
    bonded = bonded_neighbours(topology) if members else []

    def hydrogens(k: int) -> list[int]:
        return [n for n in bonded[k] if is_hydrogen(atoms[n])]

    def neighbours(k: int) -> list[int]:
        return [n for n in bonded[k] if not is_hydrogen(atoms[n])]

    def possible_length(i: int, j: int) -> float | None:
        """Return the nearest possible bond length; None where the present one is possible."""
        length = float(np.linalg.norm(positions[i] - positions[j]))
        ideal = covalent_radius(atoms[i]) + covalent_radius(atoms[j])
        if is_metal(atoms[i]) or is_metal(atoms[j]) or IMPOSSIBLE[0] < length / ideal < IMPOSSIBLE[1]:
            return None
        return float(np.clip(length, BOND_LENGTHS[0] * ideal, BOND_LENGTHS[1] * ideal))

    found: dict[int, np.ndarray] = {}
    for end in sorted(members):
        parent = bonded[end][0] if len(bonded[end]) == 1 else end
        if len(bonded[parent]) > 1 and parent != end:
            length, arm = possible_length(end, parent), positions[end] - positions[parent]
            if length is not None and arm.any():
                found[end] = positions[parent] + arm * length / np.linalg.norm(arm)
    for carbon in sorted(members):
        if symbols[carbon] != "C":
            continue
        oxygens = [k for k in neighbours(carbon) if len(neighbours(k)) == 1 and symbols[k] == "O"]
        others = [k for k in neighbours(carbon) if k not in oxygens]
        if len(oxygens) == 2 and [symbols[k] for k in others] == ["C"]:
            group = np.array([others[0], carbon, *oxygens])
            angles = angles_at(positions, group[[[0, 1, 2], [0, 1, 3], [2, 1, 3]]])
            lengths = lengths_of(positions, group[[[0, 1]]])
            is_far = abs(lengths[0] - CARBOXYLATE[0]) > 0.2
            is_bent = angles.min() < CARBOXYLATE_ANGLES[0] or angles.max() > CARBOXYLATE_ANGLES[1]
            if is_far or is_bent or found.keys() & set(oxygens):
                moved = _carboxylate(positions, group, is_far)
                found |= moved
                for atom, place in moved.items():
                    found |= {h: positions[h] + place - positions[atom] for h in hydrogens(atom)}
        if len(oxygens) == 1 and sorted(symbols[k] for k in others) == ["C", "N"]:
            end, nitrogen = sorted(others, key=symbols.__getitem__)
            beyond = [k for k in neighbours(nitrogen) if k != carbon]
            if len(neighbours(end)) == len(beyond) == 1:
                ends = [*oxygens, end, *hydrogens(end)]
                places = {k: found.get(k, positions[k]) for k in ends}
                found |= _acetamide(positions, [*beyond, nitrogen, carbon], places)
    return found


def _acetamide(
    positions: np.ndarray, chain: list[int], places: dict[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """Return the corrected oxygen and methyl of an acetamide twisted beyond `TWISTED`; `places`: now, oxygen first."""
    torsion = float(torsion_angles(positions, np.array([[*chain, next(iter(places))]]))[0])
    if not TWISTED < abs(torsion) < np.pi - TWISTED:
        return {}
    axis = positions[chain[2]] - positions[chain[1]]
    turn = Rotation.from_rotvec(-torsion * axis / np.linalg.norm(axis))
    carbon = positions[chain[2]]
    return {end: carbon + turn.apply(place - carbon) for end, place in places.items()}


def _carboxylate(positions: np.ndarray, group: np.ndarray, is_far: bool) -> dict[int, np.ndarray]:
    """Return corrected oxygens of a carboxylate, and its carbon if it is far from the group's first atom, in their plane."""
    arm = positions[group[1]] - positions[group[0]]
    axis = arm / max(float(np.linalg.norm(arm)), 1e-6)
    across = positions[group[2]] - positions[group[3]]
    across -= (across @ axis) * axis
    width = float(np.linalg.norm(across))
    if width < 0.1:  # their plane is undefined
        return {}
    carbon = positions[group[0]] + CARBOXYLATE[0] * axis if is_far else positions[group[1]]
    half = np.radians(CARBOXYLATE[2] / 2)
    arms = [np.cos(half) * axis + sign * np.sin(half) / width * across for sign in (1, -1)]
    places = [carbon, *(carbon + CARBOXYLATE[1] * each for each in arms)]
    return {int(atom): place for atom, place in list(zip(group[1:], places))[not is_far :]}


def elastic_network(
    masses: np.ndarray,
    atoms: np.ndarray,
    positions: np.ndarray,
    frequency: float,
    cutoff: float,
    pairs: np.ndarray | None = None,
) -> dict[tuple[int, int], tuple[float, float]]:
    """Return springs between the atoms of a residue, so that each vibrates about its place.

    `masses` (N,) in Da, of all atoms; `positions` (N, 3) in Å, of all atoms; `frequency`: angular, in 1/ps; `cutoff` in
    Å of the longest. Returns length in Å and force constant in kJ/mol/nm², by the two atoms in ascending order.
    """
    if len(atoms) < 2:
        return {}
    if pairs is None:
        pairs = cKDTree(positions[atoms]).query_pairs(cutoff, output_type="ndarray")
    count = np.bincount(pairs.ravel(), minlength=len(atoms))
    i, j = np.sort(atoms[pairs], axis=1).T
    reduced = masses[i] * masses[j] / (masses[i] + masses[j])
    # A third of a random spring's stiffness acts along each axis.
    stiffness = 3 * reduced * frequency**2 / count[pairs].max(axis=1)
    apart = positions[i] - positions[j]
    lengths = np.sqrt((apart[:, None] @ apart[:, :, None]).ravel())
    return dict(zip(zip(i.tolist(), j.tolist()), zip(lengths.tolist(), stiffness.tolist())))


def add_idle_springs(system: openmm.System, potentials: Sequence[PlacedPotential]) -> None:
    """Add springs without force between all atoms of each ligand, which can hold it in shape."""
    if not potentials:
        return
    force = openmm.CustomBondForce("0.5*stiffness*(r - rest)^2")
    force.setName(IDLE_SPRINGS)
    force.addPerBondParameter("rest")
    force.addPerBondParameter("stiffness")
    for placed in potentials:
        for i, j in spring_pairs(placed):
            force.addBond(i, j, [0.0, 0.0])
    system.addForce(force)


def spring_pairs(placed: PlacedPotential) -> list[tuple[int, int]]:
    """Return the pairs of a ligand's atoms, each once."""
    atoms = np.sort(placed.atoms)
    first, second = np.triu_indices(len(atoms), 1)
    return list(zip(atoms[first].tolist(), atoms[second].tolist()))
