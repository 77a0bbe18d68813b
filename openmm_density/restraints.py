"""Forces that keep peptide bonds, chiral centres and secondary structure as they are while a density pulls on the atoms.

In MDFF these are the cispeptide, chirality and ssrestraints plugins. A density force does not know chemistry: it turns a
peptide plane or inverts a centre where that puts an atom into a peak, and the force field alone then holds
the mistake as firmly as it would hold the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import mdtraj
import numpy as np
import openmm
import torch  # noqa: F401  before openmm, or openmm-torch's platform plugins stay unloaded
from openmm import app, unit

from openmm_density.errors import InputError
from openmm_density.units import positions_in_angstrom, value_in

PEPTIDE_STRENGTH = 400.0
"""kJ/mol/rad²: an ω that is turned by 90° costs 340 kJ/mol, one by 15° nothing."""
PEPTIDE_TOLERANCE = np.radians(15.0)
"""Deviation from cis or trans that is free: the spread of ω in well-refined structures is about 6°."""
CHIRALITY_STRENGTH = 1000.0
"""kJ/mol/rad²: a flat centre costs 83 kJ/mol beyond the force field, an inverted one 520."""
CHIRALITY_TOLERANCE = np.radians(12.0)
"""Deviation of an improper torsion from ideal (35.3°) that is free."""
IDEAL_IMPROPER = np.arcsin(1.0 / np.sqrt(3.0))
"""Angle (35.3°) between two planes of a tetrahedral centre's improper torsion of its three neighbours."""

SECONDARY_STRUCTURE_STRENGTH = 400.0
"""kJ/mol/rad²: a φ or ψ that is turned by 40° costs 55 kJ/mol."""
SECONDARY_STRUCTURE_TOLERANCE = np.radians(10.0)
"""Deviation of φ and ψ from where they were that is free: their thermal spread in helices."""

# All energies are flat within the tolerance and quadratic beyond it; dt is brought to (-π, π], and the force
# is continuous except where the torsion is exactly opposite to its target.
_FLAT_BOTTOM = (
    "0.5*{strength}*max(0, abs(dt) - {tolerance})^2;"
    "dt = (theta - target) - 6.283185307179586*floor((theta - target)/6.283185307179586 + 0.5)"
)

# Neighbours of each centre, in the order in which the improper torsion (centre, a, b, c) is positive for
# the natural handedness.
_PROTEIN_CENTRES = {"THR": ("CB", "CA", "OG1", "CG2"), "ILE": ("CB", "CA", "CG1", "CG2")}
_ALPHA_CENTRE = ("CA", "N", "C", "CB")
_SUGAR_CENTRES = (
    ("C1'", "O4'", "C2'", ("N9", "N1")),
    ("C3'", "O3'", "C4'", ("C2'",)),
    ("C4'", "O4'", "C5'", ("C3'",)),
    ("C2'", "O2'", "C3'", ("C1'",)),
)


def peptide_torsions(topology: app.Topology) -> np.ndarray:
    """Give the atoms Cα, C, N, Cα of every peptide bond.

    Parameters
    ----------
    topology : openmm.app.Topology
        Peptide bonds are found by its bonds between an atom C and an atom N of another residue.

    Returns
    -------
    ndarray of shape (P, 4), int64
    """
    by_name = _atoms_by_name(topology)
    torsions = []
    for a, b in topology.bonds():
        if a.residue is b.residue or {a.name, b.name} != {"C", "N"}:
            continue
        carbon, nitrogen = (a, b) if a.name == "C" else (b, a)
        first = by_name[carbon.residue.index].get("CA")
        last = by_name[nitrogen.residue.index].get("CA")
        if first is not None and last is not None:
            torsions.append((first, carbon.index, nitrogen.index, last))
    return np.array(sorted(torsions), dtype=np.int64).reshape(-1, 4)


def chiral_centres(topology: app.Topology) -> np.ndarray:
    """Give every chiral centre with three heavy neighbours, as the atoms of an improper torsion.

    Cα of amino acids, Cβ of threonine and isoleucine, and C1', C2' (RNA), C3' and C4' of nucleotides.

    Returns
    -------
    ndarray of shape (C, 4), int64
        Centre and neighbours, in the order in which :func:`torsion_angles` is positive for L-amino acids and
        D-ribose.
    """
    centres = []
    for _, names in sorted(_atoms_by_name(topology).items()):
        for found in _centres_of(names):
            centres.append(found)
    return np.array(centres, dtype=np.int64).reshape(-1, 4)


def _centres_of(names: _Residue) -> Iterator[tuple[int, ...]]:
    candidates = []
    if "C1'" in names:
        for centre, a, b, choices in _SUGAR_CENTRES:
            candidates += [(centre, a, b, c) for c in choices if c in names][:1]
    else:
        candidates.append(_ALPHA_CENTRE)
        if names.residue_name in _PROTEIN_CENTRES:
            candidates.append(_PROTEIN_CENTRES[names.residue_name])
    for candidate in candidates:
        if all(name in names for name in candidate):
            yield tuple(names[name] for name in candidate)


class _Residue(dict[str, int]):
    """Atom indices of one residue by name."""

    residue_name: str = ""


def _atoms_by_name(topology: app.Topology) -> dict[int, _Residue]:
    result: dict[int, _Residue] = defaultdict(_Residue)
    for residue in topology.residues():
        names = result[residue.index]
        names.residue_name = residue.name
        for atom in residue.atoms():
            names[atom.name] = atom.index
    return result


def torsion_angles(positions: np.ndarray, torsions: np.ndarray) -> np.ndarray:
    """Give torsion angles with OpenMM's (IUPAC's) sign.

    Parameters
    ----------
    positions : ndarray of shape (N, 3)
    torsions : ndarray of shape (T, 4), int

    Returns
    -------
    ndarray of shape (T,)
        Radians in (-π, π].
    """
    a, b, c, d = (positions[torsions[:, k]] for k in range(4))
    axis = c - b
    first = np.cross(b - a, axis)
    second = np.cross(axis, d - c)
    sine = np.einsum("ij,ij->i", np.cross(first, second), axis) / np.maximum(
        np.linalg.norm(axis, axis=1), 1e-12
    )
    return np.arctan2(sine, np.einsum("ij,ij->i", first, second))


def peptide_restraint(
    topology: app.Topology,
    positions: Any,
    strength: Any = PEPTIDE_STRENGTH,
    *,
    parameter_name: str = "peptide_strength",
    force_group: int = 0,
) -> openmm.CustomTorsionForce:
    """Hold each ω torsion at cis or trans, whichever the model is nearer to.

    E = ½ k max(0, |ω - ω₀| - 15°)² with ω₀ = 0 or π, and k the Context parameter.

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; they decide between cis and trans.
    strength : float or Quantity
        k in kJ/mol/rad², the default of the Context parameter.
    parameter_name : str
        Name of the Context parameter.
    force_group : int

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """
    torsions = peptide_torsions(topology)
    omega = torsion_angles(_checked(topology, positions), torsions)
    targets = np.where(np.abs(omega) > np.pi / 2, np.pi, 0.0)
    return _torsion_force(
        torsions, targets, strength, PEPTIDE_TOLERANCE, parameter_name, force_group, "PeptideRestraint"
    )


def chirality_restraint(
    topology: app.Topology,
    positions: Any,
    strength: Any = CHIRALITY_STRENGTH,
    *,
    parameter_name: str = "chirality_strength",
    force_group: int = 0,
) -> openmm.CustomTorsionForce:
    """Hold each chiral centre at the handedness that it has.

    E = ½ k max(0, |χ - χ₀| - 12°)² of the improper torsion χ of the centre and its three heavy neighbours,
    with χ₀ = ±35.3° and k the Context parameter.

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; they decide the handedness.
    strength : float or Quantity
        k in kJ/mol/rad², the default of the Context parameter.
    parameter_name : str
        Name of the Context parameter.
    force_group : int

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """
    centres = chiral_centres(topology)
    improper = torsion_angles(_checked(topology, positions), centres)
    targets = np.where(improper >= 0, IDEAL_IMPROPER, -IDEAL_IMPROPER)
    return _torsion_force(
        centres, targets, strength, CHIRALITY_TOLERANCE, parameter_name, force_group, "ChiralityRestraint"
    )


def secondary_structure_restraint(
    topology: app.Topology,
    positions: Any,
    strength: Any = SECONDARY_STRUCTURE_STRENGTH,
    *,
    parameter_name: str = "secondary_structure_strength",
    force_group: int = 0,
) -> openmm.CustomTorsionForce:
    """Hold φ and ψ of helices and strands where they are, so that these move into a density as they are.

    E = ½ k max(0, |φ - φ₀| - 10°)² of each such torsion, with φ₀ the angle that it has, and k the Context parameter. Without it a
    domain on its way to its density leaves loops and ends of helices behind, a turn out of register. Helices and
    strands are those of DSSP in mdtraj; a model without protein gets a force without torsions.

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : Quantity or array_like of shape (N, 3)
        Å where plain; they decide what is secondary structure, and its angles.
    strength : float or Quantity
        k in kJ/mol/rad², the default of the Context parameter.
    parameter_name : str
        Name of the Context parameter.
    force_group : int

    Raises
    ------
    InputError
        The numbers of atoms differ, a position is not a number, or the strength is negative.
    """
    positions = _checked(topology, positions)
    torsions = secondary_structure_torsions(topology, positions)
    return _torsion_force(
        torsions,
        torsion_angles(positions, torsions),
        strength,
        SECONDARY_STRUCTURE_TOLERANCE,
        parameter_name,
        force_group,
        "SecondaryStructureRestraint",
    )


def secondary_structure_torsions(topology: app.Topology, positions: np.ndarray) -> np.ndarray:
    """Give the atoms of φ and ψ of every residue in a helix or strand (DSSP).

    Parameters
    ----------
    topology : openmm.app.Topology
    positions : np.ndarray of shape (N, 3)
        Å.

    Returns
    -------
    np.ndarray of int, shape (n, 4)
    """
    trajectory = mdtraj.Trajectory(positions / 10.0, mdtraj.Topology.from_openmm(topology))
    if not any(residue.is_protein for residue in trajectory.topology.residues):
        return np.zeros((0, 4), dtype=np.int64)
    structure = mdtraj.compute_dssp(trajectory)[0]
    residue_of_atom = np.array([atom.residue.index for atom in trajectory.topology.atoms])
    phi, psi = mdtraj.compute_phi(trajectory)[0], mdtraj.compute_psi(trajectory)[0]
    torsions = np.concatenate([phi, psi]).astype(np.int64).reshape(-1, 4)
    return torsions[np.isin(structure[residue_of_atom[torsions[:, 1]]], ("H", "E"))]


def _torsion_force(
    torsions: np.ndarray,
    targets: np.ndarray,
    strength: Any,
    tolerance: float,
    parameter_name: str,
    force_group: int,
    name: str,
) -> openmm.CustomTorsionForce:
    strength = float(value_in(strength, unit.kilojoule_per_mole / unit.radian**2))
    if not np.isfinite(strength) or strength < 0:
        raise InputError(f"strength: found {strength}; give a force constant of zero or more (kJ/mol/rad²).")
    force = openmm.CustomTorsionForce(
        _FLAT_BOTTOM.format(strength=parameter_name, tolerance=repr(float(tolerance)))
    )
    force.setName(name)
    force.setForceGroup(force_group)
    force.addGlobalParameter(parameter_name, strength)
    force.addPerTorsionParameter("target")
    for atoms, target in zip(torsions, targets):
        force.addTorsion(*(int(atom) for atom in atoms), [float(target)])
    return force


def _checked(topology: app.Topology, positions: Any) -> np.ndarray:
    positions = positions_in_angstrom(positions)
    if len(positions) != topology.getNumAtoms():
        raise InputError(
            f"positions: found {len(positions)} for the {topology.getNumAtoms()} atoms of the topology; "
            "give one for each."
        )
    if not np.isfinite(positions).all():
        raise InputError("positions: one is not a number; give finite positions.")
    return positions
