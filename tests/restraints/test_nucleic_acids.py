"""The restraints of base pairs, sugar puckers and glycosidic torsions."""

from __future__ import annotations

import numpy as np
import pytest

from openmm_density.models import Model
from openmm_density.models.chemistry.base_pairs import find_base_pairs
from openmm_density.models.chemistry.sugar_puckers import AMPLITUDE, C2_ENDO, C3_ENDO, find_sugars
from openmm_density.models.chemistry.suites import find_suites
from openmm_density.models.chemistry.torsions import torsion_angles
from openmm_density.restraints import (
    BASE_PAIR_FORCE_CONSTANT,
    BASE_PLANE_FORCE_CONSTANT,
    SUGAR_PUCKER_FORCE_CONSTANT,
    BasePairRestraint,
    BasePlaneRestraint,
    GlycosidicRestraint,
    SugarPuckerRestraint,
    SuiteRestraint,
)

from ..small_models import turned_about
from .single_forces import context_with, energy_at


def strand(model: Model, chain: str) -> np.ndarray:
    return np.array([atom.index for atom in model.topology.atoms() if atom.residue.chain.id == chain])


def test_hydrogen_bonds_are_held_at_usual_lengths_and_released_far_off(dna: Model) -> None:
    restraint = BasePairRestraint(dna.topology, dna.positions)
    assert restraint.n_terms == 32 and not restraint.violations(dna.positions)
    assert restraint.lengths.min() == 2.8 and restraint.lengths.max() == 3.0
    context = context_with(restraint.create_force(), len(dna.positions))
    assert energy_at(context, dna.positions) < 0.5 * restraint.n_terms
    atom = strand(dna, "B")
    moved = [dna.positions.copy() for _ in range(3)]
    for shift, positions in zip((1.0, 8.0, 9.0), moved):
        positions[atom] += [0, 0, shift]
    opened, far, farther = (energy_at(context, positions) for positions in moved)
    # Once released, a bond costs no more than 1.5 k, and pulls no more.
    assert 0.1 < opened / far < 1 and far < 1.5 * BASE_PAIR_FORCE_CONSTANT * restraint.n_terms
    assert farther / far == pytest.approx(1, abs=0.01)
    violations = restraint.violations(moved[1])
    assert len(violations) == 32 and "held at" in str(violations[0])


def test_paired_bases_stay_near_one_plane(dna: Model) -> None:
    restraint = BasePlaneRestraint(dna.topology, dna.positions)
    assert restraint.n_terms == 12 and not restraint.violations(dna.positions)
    context = context_with(restraint.create_force(), len(dna.positions))
    start = energy_at(context, dna.positions)
    assert start < 0.05 * 12 * BASE_PLANE_FORCE_CONSTANT
    # One base is turned about the bond to its sugar.
    (chi,) = (torsion for torsion in find_sugars(dna.topology).chi if dna_number(dna, torsion[0]) == 6)
    residue = next(r for r in dna.topology.residues() if r.id == "6")
    base = np.array([a.index for a in residue.atoms() if "'" not in a.name and "P" not in a.name])
    energies = []
    for degrees in (10, 50, 90):
        turned = turned_about(dna.positions, chi[1], chi[2], base, np.radians(degrees))
        normals = find_normals(dna, turned)
        u = np.maximum(0, np.cos(np.radians(20)) - normals)
        expected = BASE_PLANE_FORCE_CONSTANT * u**2 / (u**2 + 0.2**2)
        energies.append(energy_at(context, turned))
        assert energies[-1] == pytest.approx(expected.sum(), rel=1e-6)
    assert energies[0] < 5 < energies[1] < energies[2] < start + 1.01 * BASE_PLANE_FORCE_CONSTANT
    (violation,) = restraint.violations(turned)
    assert violation.residues == ("A DA 6", "B DT 19") and violation.unit == "°"


def dna_number(model: Model, atom: int) -> int:
    return int(list(model.topology.atoms())[atom].residue.id)


def find_normals(model: Model, positions: np.ndarray) -> np.ndarray:
    """Return |cos| between the planes of N1, N3 and C5 of the pairs of the start, (P,)."""
    names = [{a.name: a.index for a in residue.atoms()} for residue in model.topology.residues()]
    found = []
    for pair in find_base_pairs(model.topology, model.positions).residues.tolist():
        one, other = (
            np.cross(*(positions[names[r][n]] - positions[names[r]["N1"]] for n in ("N3", "C5")))
            for r in pair
        )
        found.append(abs(one @ other) / np.linalg.norm(one) / np.linalg.norm(other))
    return np.array(found)


def test_puckers_of_the_start_are_held(rna: Model) -> None:
    restraint = SugarPuckerRestraint(rna.topology, rna.positions)
    assert restraint.n_terms == 3 * 83 and not restraint.violations(rna.positions)
    sugars = find_sugars(rna.topology)
    phases = sugars.phases(rna.positions)
    held = restraint.targets.reshape(-1, 3)
    assert np.allclose(held[:, 1], AMPLITUDE * np.cos(phases))
    context = context_with(restraint.create_force(), len(rna.positions))
    start = energy_at(context, rna.positions)
    assert start < 0.1 * SUGAR_PUCKER_FORCE_CONSTANT
    # C2' alone on the other side of its ring.
    at = 20
    c2, ring = sugars.rings[at, 1], np.delete(sugars.rings[at], 1)
    centre = rna.positions[ring].mean(axis=0)
    normal = np.linalg.svd(rna.positions[ring] - centre)[2][2]
    flipped = rna.positions.copy()
    flipped[c2] -= (
        2 * ((flipped[c2] - centre) @ normal + 0.35 * np.sign((flipped[c2] - centre) @ normal)) * normal
    )
    nu = torsion_angles(flipped, restraint.torsions)
    excess = np.maximum(0, np.abs(np.mod(nu - restraint.targets + np.pi, 2 * np.pi) - np.pi) - np.radians(8))
    well = np.radians(35)
    formula = SUGAR_PUCKER_FORCE_CONSTANT * well**2 * (1 - np.exp(-0.5 * (excess / well) ** 2))
    assert energy_at(context, flipped) == pytest.approx(formula.sum(), rel=1e-6)


def test_where_a_ring_contradicts_the_phosphate_the_phosphate_decides(rna: Model, dna: Model) -> None:
    sugars = find_sugars(rna.topology)
    moved = rna.positions.copy()
    for at, factor in ((20, 0.4), (8, 3.5)):  # C3'-endo with a near phosphate, C2'-endo with a far one
        phosphorus = sugars.epsilon[at, 3]
        origin, end = moved[sugars.chi[at, 1]], moved[sugars.chi[at, 2]]
        line = (end - origin) / np.linalg.norm(end - origin)
        foot = origin + line * ((moved[phosphorus] - origin) @ line)
        moved[phosphorus] = foot + factor * (moved[phosphorus] - foot)
    held = SugarPuckerRestraint(rna.topology, moved).targets.reshape(-1, 3)
    assert held[20, 1] == pytest.approx(AMPLITUDE * np.cos(C2_ENDO))
    assert held[8, 1] == pytest.approx(AMPLITUDE * np.cos(C3_ENDO))
    others = np.delete(np.arange(len(held)), [20, 8])
    plain = SugarPuckerRestraint(rna.topology, rna.positions).targets.reshape(-1, 3)
    assert np.array_equal(held[others], plain[others])
    # The phosphate of DNA does not tell: A DC 3 is O4'-endo with Pperp over 2.9 Å, and stays so.
    of_dna = SugarPuckerRestraint(dna.topology, dna.positions).targets.reshape(-1, 3)
    assert np.allclose(of_dna[:, 1], AMPLITUDE * np.cos(find_sugars(dna.topology).phases(dna.positions)))


def test_bases_stay_syn_or_anti(rna: Model) -> None:
    restraint = GlycosidicRestraint(rna.topology, rna.positions)
    assert restraint.n_terms == 83 and not restraint.violations(rna.positions)
    context = context_with(restraint.create_force(), len(rna.positions))
    assert energy_at(context, rna.positions) == pytest.approx(0, abs=1e-6)
    residue = list(rna.topology.residues())[30]
    base = np.array([a.index for a in residue.atoms() if "'" not in a.name and "P" not in a.name])
    chi = find_sugars(rna.topology).chi[30]
    turned = turned_about(rna.positions, chi[1], chi[2], base, np.pi)
    (violation,) = restraint.violations(turned)
    assert violation.quantity == "χ" and violation.deviation == pytest.approx(180, abs=0.1)
    assert 20 < energy_at(context, turned) < 40


def test_suites_that_are_conformers_are_held(rna: Model) -> None:
    restraint = SuiteRestraint(rna.topology, rna.positions)
    names, _ = find_suites(rna.topology).conformers(rna.positions)
    assert restraint.n_terms == 5 * (names != "!!").sum() == 5 * 74 and not restraint.violations(
        rna.positions
    )
    context = context_with(restraint.create_force(), len(rna.positions))
    assert energy_at(context, rna.positions) == pytest.approx(0, abs=1e-6)
    assert [restraint._quantity(each) for each in restraint.torsions[:5]] == ["ε", "ζ", "α", "β", "γ"]
    # The part before an α turned about its bond.
    alpha = restraint.torsions[5 * 40 + 2]
    turned = turned_about(rna.positions, alpha[1], alpha[2], np.arange(alpha[1] + 1), np.pi / 2)
    assert "α" in [each.quantity for each in restraint.violations(turned)]
    assert 5 < energy_at(context, turned) < 60


def test_a_protein_has_nothing_of_this(emd5925: Model) -> None:
    for kind in (
        BasePairRestraint,
        BasePlaneRestraint,
        SugarPuckerRestraint,
        GlycosidicRestraint,
        SuiteRestraint,
    ):
        restraint = kind(emd5925.topology, emd5925.positions)
        assert restraint.n_terms == 0 and restraint.violations(emd5925.positions) == []
        assert (
            energy_at(context_with(restraint.create_force(), len(emd5925.positions)), emd5925.positions) == 0
        )
