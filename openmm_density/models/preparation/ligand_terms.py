"""What a System holds of ligands with a potential of their own: its force, constraints, and springs that lie idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import openmm
from openmm import app
from scipy.spatial import cKDTree

from ..chemistry.elements import covalent_radius, is_metal
from ..ligand_potentials import PlacedPotential

IDLE_SPRINGS = "HeldLigands"
"""Name of the force that holds ligands, at first with constants of 0. It also tells OpenMM which atoms are one molecule."""

POTENTIAL = "LigandPotential"
"""Name of the force of each ligand."""

BOND_LENGTHS, IMPOSSIBLE = (0.85, 1.15), (0.72, 1.3)
"""Parts of the sum of the covalent radii that bonds have, and beyond which there is none: triple bonds have 0.77."""

_NM_PER_ANGSTROM = 0.1
# How OpenMM names it.
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
    """Return the potentials of all copies of a model in a System, copy by copy, each with a parameter of its own."""
    if len(first) == 1:
        return [replace(placed, atoms=placed.atoms + first[0]) for placed in potentials]
    return [
        replace(placed, atoms=placed.atoms + begin, parameter_name=f"{placed.parameter_name}_of_{number}")
        for number, begin in enumerate(first, start=1)
        for placed in potentials
    ]


def constrain_hydrogens(system: openmm.System, placed: PlacedPotential) -> None:
    """Keep the bonds of a ligand's hydrogens as long as in the conformer at rest: they would ask for short time steps."""
    known = placed.potential
    for a, b in known.bonds:
        if "H" in (known.elements[a], known.elements[b]):
            length = float(np.linalg.norm(known.positions[a] - known.positions[b]))
            system.addConstraint(int(placed.atoms[a]), int(placed.atoms[b]), length * _NM_PER_ANGSTROM)


def remove_inner_terms(system: openmm.System, placed: PlacedPotential) -> None:
    """Remove from a System what CHARMM's force field has between atoms of a ligand that three bonds join."""
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
    """Return by atom where singly bonded atoms of rigid residues belong, in Å, if that bond (positions (N, 3), Å) is of no
    bond's length.
    """
    members = {int(index) for atoms in rigid for index in atoms}
    neighbours: dict[int, list[app.topology.Atom]] = defaultdict(list)
    for a, b in topology.bonds() if members else ():
        neighbours[a.index].append(b)
        neighbours[b.index].append(a)
    atoms, found = list(topology.atoms()), {}
    for end in sorted(members):
        if len(neighbours[end]) != 1 or len(neighbours[neighbours[end][0].index]) < 2:
            continue
        parent = neighbours[end][0]
        arm = positions[end] - positions[parent.index]
        length = float(np.linalg.norm(arm))
        ideal = covalent_radius(atoms[end]) + covalent_radius(parent)
        impossible = not IMPOSSIBLE[0] < length / ideal < IMPOSSIBLE[1]
        if impossible and length > 0 and not (is_metal(atoms[end]) or is_metal(parent)):
            usual = np.clip(length, BOND_LENGTHS[0] * ideal, BOND_LENGTHS[1] * ideal)
            found[end] = positions[parent.index] + arm * usual / length
    return found


def elastic_network(
    masses: np.ndarray,
    atoms: np.ndarray,
    positions: np.ndarray,
    frequency: float,
    cutoff: float,
    pairs: np.ndarray | None = None,
) -> dict[tuple[int, int], tuple[float, float]]:
    """Return springs between the atoms of a residue with which each vibrates about its place.

    `masses` (N,) in Da, of all atoms; `positions` (N, 3) in Å, of all atoms; `frequency`: angular, in 1/ps; `cutoff` in
    Å of the longest. Returns length in Å and force constant in kJ/mol/nm², by the two atoms in ascending order.
    """
    if len(atoms) < 2:
        return {}
    if pairs is None:
        pairs = cKDTree(positions[atoms]).query_pairs(cutoff, output_type="ndarray")
    count = np.bincount(pairs.ravel(), minlength=len(atoms))
    springs = {}
    for k, m in pairs:
        i, j = sorted((int(atoms[k]), int(atoms[m])))
        reduced = masses[i] * masses[j] / (masses[i] + masses[j])
        # A third of a random spring's stiffness acts along each axis.
        stiffness = 3 * reduced * frequency**2 / max(count[k], count[m])
        springs[i, j] = float(np.linalg.norm(positions[i] - positions[j])), stiffness
    return springs


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
