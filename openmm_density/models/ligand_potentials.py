"""Ligands with a potential of their own: their hydrogens, and how they interact with their surroundings.

The potential alone gives the energy within such a ligand. With its surroundings it interacts like atoms of a force field
(mechanical embedding): by charges, which belong to the potential, and by Lennard-Jones spheres, defined here by element.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

import gemmi
import numpy as np
import openmm
from openmm import app

from ..base.errors import InputError, as_argument
from .ligand_hydrogens import BuiltHydrogen, CompleteMolecule, built_hydrogens, graph_of, same_atoms

XTB = "xtb"
"""The option of `openmm_density.models.prepare` for ligands with a potential learned from GFN2-xTB."""
OPENMM_ML = "openmmml:"
"""Prefix of the name of a potential of OpenMM-ML, as in ``openmmml:ani2x``."""

RIGID_EPSILON = 0.4
"""Lennard-Jones well depth (kJ/mol) of atoms of which only the element is known."""

_KILOCALORIE = 4.184
# Radii of the minimum (Å) and depths (kcal/mol) of GAFF (Wang et al., J. Comput. Chem. 25, 1157, 2004), of each element's most
# common type; hydrogens by the atom they are bound to, so that they can form hydrogen bonds.
_SPHERES = {
    "C": (1.908, 0.0860),
    "N": (1.824, 0.1700),
    "O": (1.6837, 0.1700),
    "F": (1.750, 0.0610),
    "P": (2.100, 0.2000),
    "S": (2.000, 0.2500),
    "Cl": (1.948, 0.2650),
    "Br": (2.020, 0.4200),
    "I": (2.150, 0.5000),
}
_HYDROGENS = {"C": (1.487, 0.0157), "N": (0.600, 0.0157), "O": (0.300, 0.0010), "S": (0.600, 0.0157)}


def gives_potentials(ligand_forcefield: str | None) -> bool:
    """Return whether ligands have potentials of their own."""
    return ligand_forcefield == XTB or (ligand_forcefield or "").startswith(OPENMM_ML)


class InternalPotential(Protocol):
    """What gives a ligand its energy."""

    version: str  # What it is, as in ``GFN2-xTB student 1``
    elements: Sequence[str]  # length n, of its atoms, hydrogens included
    bonds: Sequence[tuple[int, int]]
    charges: np.ndarray  # (n,), in elementary charges, for the Coulomb interaction with its surroundings
    positions: np.ndarray  # (n, 3), of a conformer at rest, in Å
    smiles: str
    path: Path | None  # The file that it is from
    sha256: str  # The checksum of that file; empty without one
    bound: float  # The largest `disagreement`, in kcal/mol/Å, of a geometry within its training range

    def create_force(self, particles: np.ndarray, n_particles: int, parameter_name: str) -> openmm.Force:
        """Build the force of one copy."""
        ...

    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol of positions (n, 3) in nm, relative to the conformer at rest."""
        ...

    def disagreement(self, positions: np.ndarray) -> float:
        """Return how much the forces of its models differ at positions (n, 3) in nm, in kcal/mol/Å; 0 for a single model."""
        ...


@dataclass(frozen=True)
class FoundPotentials:
    """The potentials of a model's ligands by residue name, and sentences on ligands that have none."""

    by_name: dict[str, InternalPotential]
    notes: list[str]

    @property
    def paths(self) -> list[Path]:
        """The files that they are from."""
        return list(dict.fromkeys(each.path for each in self.by_name.values() if each.path is not None))


@dataclass(frozen=True)
class PlacedPotential:
    """A ligand of a model with its potential."""

    label: str  # As in ``A LIG 501``
    potential: InternalPotential
    atoms: np.ndarray  # int (n,), of the topology, in the potential's order
    parameter_name: str  # The name of the Context's parameter that scales its energy


class PotentialParameters:
    """Parameters for ligands that have a potential; the same to `prepare` as `LigandParameters`.

    `potentials` by residue name. Attributes: `placed`: those for which `add_to` has made templates; `templates`: the
    names of these, by the index of the residue.
    """

    def __init__(self, potentials: Mapping[str, InternalPotential]) -> None:
        self._potentials = dict(potentials)
        self.placed: list[PlacedPotential] = []
        self.templates: dict[int, str] = {}

    @property
    def names(self) -> frozenset[str]:
        """The residue names that have a potential."""
        return frozenset(self._potentials)

    def version_of(self, name: str) -> str:
        """Return the version of the potential of residues with a name."""
        return self._potentials[name].version

    def hydrogens(
        self,
        name: str,
        label: str,
        elements: Sequence[str],
        bonds: Sequence[tuple[int, int]],
        positions: np.ndarray,
    ) -> list[BuiltHydrogen]:
        """Build the hydrogens of a ligand; see `openmm_density.models.ligand_hydrogens.built_hydrogens`."""
        return built_hydrogens(self.molecule(name), label, elements, bonds, positions)

    def molecule(self, name: str) -> CompleteMolecule:
        """Return the molecule of residues with a name."""
        return molecule_of(self._potentials[name])

    def add_to(
        self, forcefield: app.ForceField, residues: Sequence[tuple[str, app.topology.Residue]]
    ) -> None:
        """Record the atoms of each ligand, and the templates that `load_into` adds to the force field."""
        xml = ElementTree.Element("ForceField")
        types = ElementTree.SubElement(xml, "AtomTypes")
        definitions = ElementTree.SubElement(xml, "Residues")
        spheres: dict[str, AtomType] = {}
        for label, residue in residues:
            potential = self._potentials[residue.name]
            template = f"{residue.name}-{XTB}-openmm-density"
            if template not in self.templates.values():
                spheres |= _define(definitions, template, potential)
            self.templates[residue.index] = template
            atoms = atoms_in_order(potential, label, residue)
            parameter = f"ligand_{len(self.placed) + 1}_strength"
            self.placed.append(PlacedPotential(label, potential, atoms, parameter))
        define_types(xml, types, forcefield, spheres)
        self._xml = ElementTree.tostring(xml, encoding="unicode")

    def load_into(self, forcefield: app.ForceField) -> None:
        """Add the templates to a force field after it has been asked which residues it knows: no others may use them."""
        forcefield.loadFile(io.StringIO(self._xml))


def molecule_of(potential: InternalPotential) -> CompleteMolecule:
    """Return the molecule of a potential, in the conformer at rest."""
    return CompleteMolecule(
        potential.elements, potential.bonds, potential.positions, f'of its potential ("{potential.smiles}")'
    )


def atoms_in_order(potential: InternalPotential, label: str, residue: app.topology.Residue) -> np.ndarray:
    """Return the atoms of a residue in the potential's order."""
    atoms = list(residue.atoms())
    place = {atom.index: k for k, atom in enumerate(atoms)}
    own = graph_of(
        [atom.element.symbol for atom in atoms],
        [(place[a.index], place[b.index]) for a, b in residue.internal_bonds()],
    )
    found = next(same_atoms(graph_of(potential.elements, potential.bonds), own), None)
    if found is None:
        raise InputError(
            f"its {len(atoms)} atoms and their bonds are not the {len(potential.elements)} of its potential "
            f'("{potential.smiles}")',
            source=label,
            remedy=f"give that of what is in the model, or keep it rigid, without {as_argument('ligand_forcefield', XTB)}",
        )
    return np.array([atoms[found[k]].index for k in range(len(atoms))])


@dataclass(frozen=True)
class AtomType:
    """An atom type of a force field: element, charge, and a Lennard-Jones sphere of nm and kJ/mol."""

    element: str
    charge: float
    sigma: float
    epsilon: float


def sphere_of_element(symbol: str) -> tuple[float, float]:
    """Return σ (nm) and ε (kJ/mol) of an element by its van der Waals radius."""
    return 2 * gemmi.Element(symbol).vdw_r / 10.0 / 2 ** (1 / 6), RIGID_EPSILON


def define_types(
    xml: ElementTree.Element,
    types: ElementTree.Element,
    forcefield: app.ForceField,
    wanted: Mapping[str, AtomType],
) -> None:
    """Write atom types by name, to go with a force field."""
    generators = forcefield.getGenerators()
    own = next((g for g in generators if isinstance(g, app.forcefield.NonbondedGenerator)), None)
    separate = next((g for g in generators if isinstance(g, app.forcefield.LennardJonesGenerator)), None)
    nonbonded = ElementTree.SubElement(
        xml,
        "NonbondedForce",
        coulomb14scale=repr(own.coulomb14scale if own else 1.0),
        lj14scale=repr(own.lj14scale if own else 1.0),
    )
    # CHARMM keeps Lennard-Jones terms in a force of their own, with nothing left in NonbondedForce.
    spheres = nonbonded
    if separate is not None:
        spheres = ElementTree.SubElement(xml, "LennardJonesForce", lj14scale=repr(separate.lj14scale))
    for name, kind in wanted.items():
        mass = repr(gemmi.Element(kind.element).weight)
        ElementTree.SubElement(
            types, "Type", {"name": name, "class": name, "element": kind.element, "mass": mass}
        )
        sphere = {"epsilon": repr(kind.epsilon), "sigma": repr(kind.sigma)}
        nothing = {"epsilon": "0", "sigma": "1"}
        if spheres is not nonbonded:
            ElementTree.SubElement(spheres, "Atom", {"type": name, **sphere})
        charged = {"type": name, "charge": repr(kind.charge)}
        ElementTree.SubElement(
            nonbonded, "Atom", {**charged, **(sphere if spheres is nonbonded else nothing)}
        )


def _define(
    definitions: ElementTree.Element, template: str, potential: InternalPotential
) -> dict[str, AtomType]:
    """Write a template, and return the types of its atoms by name."""
    definition = ElementTree.SubElement(definitions, "Residue", name=template)
    neighbours = graph_of(potential.elements, potential.bonds)
    found = {}
    charges = _alike(potential)
    for k, symbol in enumerate(potential.elements):
        name = f"{template}-{k}"
        parent = potential.elements[min(neighbours[k])].capitalize() if len(neighbours[k]) else ""
        found[name] = AtomType(symbol.capitalize(), charges[k], *_sphere(symbol.capitalize(), parent))
        ElementTree.SubElement(definition, "Atom", name=f"a{k}", type=name, charge=repr(charges[k]))
    for a, b in potential.bonds:
        ElementTree.SubElement(definition, "Bond", atomName1=f"a{a}", atomName2=f"a{b}")
    return found


def _sphere(symbol: str, parent: str) -> tuple[float, float]:
    known = _HYDROGENS.get(parent) if symbol == "H" else _SPHERES.get(symbol)
    if known is None:
        return sphere_of_element(symbol)
    radius, depth = known
    return 2 * radius / 10.0 / 2 ** (1 / 6), depth * _KILOCALORIE


def _alike(potential: InternalPotential) -> list[float]:
    """Return charges averaged over atoms that bonds do not distinguish, such as a methyl's hydrogens."""
    graph = graph_of(potential.elements, potential.bonds)
    kinds = {k: symbol.capitalize() for k, symbol in enumerate(potential.elements)}
    for _ in range(len(kinds)):
        refined = {k: (kinds[k], tuple(sorted(str(kinds[n]) for n in graph[k]))) for k in graph}
        numbers = {kind: number for number, kind in enumerate(sorted(set(refined.values()), key=str))}
        found = {k: numbers[refined[k]] for k in graph}
        if len(set(found.values())) == len(set(kinds.values())):
            break
        kinds = found
    charges = np.asarray(potential.charges, dtype=np.float64)
    alike = [[m for m in graph if kinds[m] == kinds[k]] for k in range(len(charges))]
    return [float(charges[members].mean()) for members in alike]
