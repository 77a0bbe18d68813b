"""Flatten a puckered haem ring: planarity of a ligand that no force field knows, as one more force in a System.

Run it with ``python planarity_ligand.py``; it takes a few seconds and needs no files. The ligand is the core of a haem: four
pyrroles joined by methine bridges around an iron. Models that were built into poor density, or pulled through it, come out domed,
ruffled or saddled. A restraint dictionary, as REFMAC and AceDRG write it, says which of its atoms are flat and how flat, and
`PlanarityRestraint` makes a force of that.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import openmm
from openmm import app, unit

from openmm_density import PlanarityRestraint
from openmm_density.models.chemistry.planes import PlaneSet, planarity_report

DICTIONARY = """\
data_comp_LIG
loop_
_chem_comp_atom.comp_id
_chem_comp_atom.atom_id
_chem_comp_atom.type_symbol
{atoms}
loop_
_chem_comp_plane_atom.comp_id
_chem_comp_plane_atom.plane_id
_chem_comp_plane_atom.atom_id
_chem_comp_plane_atom.dist_esd
{members}
"""


def pyrrole_ring() -> tuple[app.Topology, np.ndarray]:
    """Build the ideal ring from one of its quarters: names, bonds, and positions in Å."""
    quarter = {
        "N": (0.00, 2.05),
        "C1": (-1.09, 2.87),
        "C2": (-0.68, 4.22),
        "C3": (0.68, 4.22),
        "C4": (1.09, 2.87),
        "CH": (2.42, 2.42),  # the bridge to the next pyrrole
    }
    topology = app.Topology()
    residue = topology.addResidue("LIG", topology.addChain("A"), "1")
    iron = topology.addAtom("FE", app.Element.getBySymbol("Fe"), residue)
    positions, atoms = [(0.0, 0.0, 0.0)], {}
    for turn, letter in enumerate("ABCD"):
        cosine, sine = np.cos(turn * np.pi / 2), np.sin(turn * np.pi / 2)
        for name, (x, y) in quarter.items():
            atoms[name, turn] = topology.addAtom(name + letter, app.Element.getBySymbol(name[0]), residue)
            positions.append((cosine * x + sine * y, cosine * y - sine * x, 0.0))
    for turn in range(4):
        bonds = ("N C1", "N C4", "C1 C2", "C2 C3", "C3 C4", "C4 CH")
        for one, other in (bond.split() for bond in bonds):
            topology.addBond(atoms[one, turn], atoms[other, turn])
        topology.addBond(atoms["CH", turn], atoms["C1", (turn + 1) % 4])
        topology.addBond(iron, atoms["N", turn])
    return topology, np.array(positions)


def restraint_dictionary(topology: app.Topology) -> str:
    """Write what a dictionary says on flatness: all of the ring is in one plane, to 0.02 Å. The iron may leave it."""
    atoms = [f"LIG {atom.name} {atom.element.symbol}" for atom in topology.atoms()]
    members = [f"LIG ring {atom.name} 0.02" for atom in topology.atoms() if atom.name != "FE"]
    return DICTIONARY.format(atoms="\n".join(atoms), members="\n".join(members))


def ligand_system(topology: app.Topology, ideal: np.ndarray) -> openmm.System:
    """Hold the ideal bond lengths and angles by springs, and leave the ring free to pucker."""
    system = openmm.System()
    for atom in topology.atoms():
        system.addParticle(atom.element.mass)
    neighbours: dict[int, set[int]] = {atom.index: set() for atom in topology.atoms()}
    for one, other in topology.bonds():
        neighbours[one.index].add(other.index)
        neighbours[other.index].add(one.index)
    springs = openmm.HarmonicBondForce()
    for centre, around in neighbours.items():
        pairs = [(centre, other, 3e5) for other in around if centre < other]
        pairs += [(one, other, 1e5) for one in around for other in around if one < other]
        for one, other, stiffness in pairs:  # in kJ/mol/nm²
            springs.addBond(one, other, float(np.linalg.norm(ideal[one] - ideal[other])) / 10, stiffness)
    system.addForce(springs)
    return system


def minimised(system: openmm.System, positions: np.ndarray) -> np.ndarray:
    """Return the positions in Å at the nearest minimum of the energy."""
    platform = openmm.Platform.getPlatformByName("CPU")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(positions / 10)
    openmm.LocalEnergyMinimizer.minimize(context, tolerance=1.0)
    positions = context.getState(positions=True).getPositions(asNumpy=True)
    return positions.value_in_unit(unit.angstrom)


def describe(title: str, topology: app.Topology, planes: PlaneSet, positions: np.ndarray) -> None:
    """Print how flat the ring is."""
    report = planarity_report(topology, planes, positions)
    (ring,) = report.rows
    print(f"{title:<36} RMS {report.rms:.4f} Å   worst {report.worst:.4f} Å ({ring.worst_atom})")


def main() -> None:
    """Pucker the ring, minimise it without and with planarity, and print what becomes of it."""
    topology, ideal = pyrrole_ring()

    # A saddle: bridges stay where they are, pyrroles tilt up and down in turn. And some noise, as a real model has.
    angle = np.arctan2(ideal[:, 1], ideal[:, 0])
    puckered = ideal.copy()
    puckered[:, 2] += 0.10 * np.linalg.norm(ideal, axis=1) * np.cos(2 * angle)
    puckered += np.random.default_rng(0).normal(scale=0.1, size=ideal.shape)

    with tempfile.TemporaryDirectory() as folder:
        dictionary = Path(folder) / "LIG.cif"
        dictionary.write_text(restraint_dictionary(topology))
        restraint = PlanarityRestraint(topology, dictionaries=[dictionary], positions=puckered)

    describe("puckered", topology, restraint.planes, puckered)

    system = ligand_system(topology, ideal)
    describe("minimised without planarity", topology, restraint.planes, minimised(system, puckered))

    # The two lines that matter. `planarity_strength` is a Context parameter: 1 here, and 0 switches the force off.
    system = ligand_system(topology, ideal)
    system.addForce(restraint.create_force())
    describe("minimised with planarity", topology, restraint.planes, minimised(system, puckered))


if __name__ == "__main__":
    main()
