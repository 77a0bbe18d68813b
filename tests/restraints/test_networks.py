from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from openmm import Vec3, app, unit

from openmm_density.base.errors import InputError
from openmm_density.models import Model, read_model
from openmm_density.restraints import (
    DistanceRestraint,
    ElasticNetworkRestraint,
    PositionalRestraint,
    find_domains,
)

from ..small_models import ADK_CLOSED
from .single_forces import context_with, energy_at


def test_adenylate_kinase_has_its_three_domains(kinase: Model) -> None:
    domains = find_domains(kinase.topology, kinase.positions)
    number = {int(residue.id): domain for residue, domain in zip(kinase.topology.residues(), domains)}
    core, binding, lid = number[5], number[45], number[135]
    assert len({core, binding, lid}) == 3 and set(number.values()) == {core, binding, lid}
    # CORE 1-29, 68-117 and 161-214, NMP 30-67 and LID 118-160 (Müller and others, 1996), but for a few at the hinges.
    for expected, ranges in {
        core: [(1, 29), (103, 117), (165, 214)],
        binding: [(30, 67)],
        lid: [(118, 160)],
    }.items():
        residues = [r for first, last in ranges for r in range(first, last + 1)]
        agreeing = sum(number[r] == expected for r in residues)
        assert agreeing >= 0.8 * len(residues)


def test_domains_move_freely_as_rigid_bodies(kinase: Model) -> None:
    restraint = ElasticNetworkRestraint(kinase.topology, kinase.positions)
    assert restraint.n_domains == 3
    context = context_with(restraint.create_force(), len(kinase.positions))
    assert energy_at(context, kinase.positions) == pytest.approx(0, abs=1e-6)
    lid = restraint.domains[134]
    residue = np.array([atom.residue.index for atom in kinase.topology.atoms()])
    moving = restraint.domains[residue] == lid
    moved = kinase.positions.copy()
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    moved[moving] = moved[moving] @ turn.T + [10.0, 0.0, 0.0]
    assert energy_at(context, moved) == pytest.approx(0, abs=1e-6) and restraint.violations(moved) == []
    whole = ElasticNetworkRestraint(kinase.topology, kinase.positions, domains="chain")
    assert whole.n_domains == 1 and whole.n_terms > restraint.n_terms
    assert energy_at(context_with(whole.create_force(), len(moved)), moved) > 1000
    violations = whole.violations(moved)
    assert violations and all(v.quantity == "CA to CA" and v.deviation > 1 for v in violations)
    excess = [v.deviation for v in violations]
    assert excess == sorted(excess, reverse=True)


def test_springs_are_the_formula(kinase: Model) -> None:
    restraint = ElasticNetworkRestraint(
        kinase.topology,
        kinase.positions,
        3 * unit.kilocalorie_per_mole / unit.angstrom**2,
        domains=["resSeq 1 to 29", "resSeq 118 to 160"],
        cutoff=0.7 * unit.nanometer,
    )
    atoms = list(kinase.topology.atoms())
    numbers = {int(atoms[i].residue.id) for i in restraint.pairs.ravel()}
    assert numbers <= {*range(1, 30), *range(118, 161)} and restraint.lengths.max() < 7
    shaken = kinase.positions + np.random.default_rng(1).normal(size=kinase.positions.shape)
    i, j = restraint.pairs.T
    change = np.linalg.norm(shaken[i] - shaken[j], axis=1) - restraint.lengths
    energy = energy_at(context_with(restraint.create_force(), len(shaken)), shaken)
    assert energy == pytest.approx(0.5 * 3 * 4.184 * (change**2).sum(), rel=1e-6)


def test_bad_domains(kinase: Model) -> None:
    def make(domains: object) -> None:
        ElasticNetworkRestraint(kinase.topology, kinase.positions, domains=domains)

    for domains, message in (
        ("hinges", 'domains must be .* found "hinges"'),
        (["resSeq 1 to 9", "resSeq 9 to 12"], "overlaps"),
        (["resSeq 900"], "selects nothing"),
        (["resSeq 1 and ("], "must be mdtraj selections"),
        ([1, 2, 3], "214 residues"),
    ):
        with pytest.raises(InputError, match=message):
            make(domains)
    with pytest.raises(InputError, match="cutoff"):
        ElasticNetworkRestraint(kinase.topology, kinase.positions, cutoff=-1)


def test_nucleotides_are_held_by_p_and_c1(small_data: Path) -> None:
    import pdbfixer

    templates = Path(pdbfixer.__file__).parent / "templates"
    topology, places = app.Topology(), []
    chain = topology.addChain("R")
    for number, name in enumerate(["A", "C", "G", "U"]):
        template = app.PDBFile(str(templates / f"{name}.pdb"))
        residue = topology.addResidue(name, chain)
        for atom, place in zip(template.topology.atoms(), template.positions.value_in_unit(unit.angstrom)):
            topology.addAtom(atom.name, atom.element, residue)
            places.append(np.add(place, [6.0 * number, 0, 0]))
    elastic = ElasticNetworkRestraint(topology, np.array(places))
    names = [atom.name for atom in topology.atoms()]
    assert {names[i] for i in elastic.pairs.ravel()} <= {"P", "C1'"} and elastic.n_domains == 1
    assert elastic.n_terms >= 3
    web = DistanceRestraint(topology, np.array(places))
    assert {names[i] for i in web.pairs.ravel()} >= {"C1'", "C4'", "N1"}


def test_calcium_is_no_residue_of_a_protein() -> None:
    topology = app.Topology()
    for _ in range(3):
        topology.addAtom("CA", app.element.calcium, topology.addResidue("CA", topology.addChain("A")))
    restraint = ElasticNetworkRestraint(topology, np.arange(9.0).reshape(3, 3))
    assert restraint.n_terms == 0 and restraint.n_domains == 0


def loss(x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Barron's general loss (2019, eq. 1) for x in units of its width."""
    return np.abs(alpha - 2) / alpha * ((x**2 / np.abs(alpha - 2) + 1) ** (alpha / 2) - 1)


def test_distances_cost_the_general_loss(emd5925: Model) -> None:
    restraint = DistanceRestraint(
        emd5925.topology, emd5925.positions, 7.0, fall_off=1.5, tolerance=0.05, well=0.2
    )
    context = context_with(restraint.create_force(), len(emd5925.positions))
    assert energy_at(context, emd5925.positions) == 0
    shaken = emd5925.positions + np.random.default_rng(2).normal(size=emd5925.positions.shape)
    i, j = restraint.pairs.T
    target = restraint.lengths
    beyond = np.maximum(np.abs(np.linalg.norm(shaken[i] - shaken[j], axis=1) - target) - 0.05 * target, 0)
    expected = 7.0 * loss(beyond / (0.2 * target), -2 - 1.5 * np.log(target)).sum()
    assert energy_at(context, shaken) == pytest.approx(expected, rel=1e-6)
    residue = np.array([atom.residue.index for atom in emd5925.topology.atoms()])
    assert (residue[i] != residue[j]).all() and target.max() < 8


def test_what_may_be_off_is_held_by_wider_wells_or_not(emd5925: Model) -> None:
    tight = DistanceRestraint(emd5925.topology, emd5925.positions, 7.0)
    own = np.where(np.arange(97) < 30, 3.0, 0.1)
    own[60:] = np.inf
    loose = DistanceRestraint(
        emd5925.topology, emd5925.positions, 7.0, expected_error=lambda i, j: np.maximum(own[i], own[j])
    )
    residue = np.array([atom.residue.index for atom in emd5925.topology.atoms()])
    of_pairs = residue[tight.pairs]
    assert np.array_equal(loose.pairs, tight.pairs[(of_pairs < 60).all(axis=1)])
    context = context_with(loose.create_force(), len(emd5925.positions))
    shaken = emd5925.positions + np.random.default_rng(2).normal(size=emd5925.positions.shape)
    i, j = loose.pairs.T
    target = loose.lengths
    well = np.maximum(0.1 * target, np.maximum(own[residue[i]], own[residue[j]]))
    beyond = np.maximum(np.abs(np.linalg.norm(shaken[i] - shaken[j], axis=1) - target) - 0.025 * target, 0)
    expected = 7.0 * loss(beyond / well, -2 - 2 * np.log(target)).sum()
    assert energy_at(context, shaken) == pytest.approx(expected, rel=1e-6)


def test_a_broken_distance_lets_go(emd5925: Model) -> None:
    restraint = DistanceRestraint(emd5925.topology, emd5925.positions, 10.0)
    last = np.array([atom.residue.index == 93 for atom in emd5925.topology.atoms()])
    broken = [k for k, (i, j) in enumerate(restraint.pairs) if last[i] or last[j]]
    context = context_with(restraint.create_force(), len(last))
    energies = []
    for away in (20.0, 200.0, 2000.0):
        moved = emd5925.positions + np.where(last[:, None], [away, 0, 0], 0)
        energies.append(energy_at(context, moved))
    alpha = -2 - 2 * np.log(restraint.lengths[broken])
    assert energies[2] == pytest.approx(10.0 * ((alpha - 2) / alpha).sum(), rel=1e-3)
    assert energies[0] > 0.9 * energies[2]
    violations = restraint.violations(moved)
    assert len(violations) == len(broken)
    residues = list(emd5925.topology.residues())
    assert all(f"A {residues[93].name} {residues[93].id}" in violation.residues for violation in violations)


def test_distances_of_another_model(kinase: Model) -> None:
    closed = read_model(ADK_CLOSED)
    restraint = DistanceRestraint(kinase.topology, kinase.positions, reference=closed)
    own = DistanceRestraint(closed.topology, closed.positions)
    assert restraint.n_terms == own.n_terms
    context = context_with(restraint.create_force(), len(kinase.positions))
    assert energy_at(context, kinase.positions) > 1000
    # Both files have the same atoms in one order.
    assert energy_at(context, closed.positions) == 0
    assert restraint.violations(closed.positions) == [] and restraint.violations(kinase.positions)
    pair = DistanceRestraint(
        kinase.topology, kinase.positions, reference=(closed.topology, closed.positions / 10 * unit.nanometer)
    )
    np.testing.assert_allclose(pair.lengths, restraint.lengths)


def test_bad_distances(kinase: Model) -> None:
    for options, message in (
        ({"cutoff": 0.0}, "cutoff"),
        ({"well": 0.0}, "well"),
        ({"tolerance": -0.1}, "tolerance"),
        ({"fall_off": -1.0}, "fall_off"),
        ({"fall_off": "fast"}, "fall_off"),
        ({"reference": (kinase.topology, kinase.positions[1:])}, "reference"),
    ):
        with pytest.raises(InputError, match=message):
            DistanceRestraint(kinase.topology, kinase.positions, **options)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("width", [0.0, 0.5])
def test_atoms_are_held_at_their_places(emd5925: Model, width: float, periodic: bool) -> None:
    restraint = PositionalRestraint(
        emd5925.topology, emd5925.positions, 500.0, atoms="name CA", width=width, periodic=periodic
    )
    assert restraint.n_terms == 94
    context = context_with(restraint.create_force(), len(emd5925.positions))
    context.setPeriodicBoxVectors(Vec3(9, 0, 0), Vec3(0, 9, 0), Vec3(0, 0, 9))
    # At its own place an atom has no force, and not one that is no number.
    assert energy_at(context, emd5925.positions) == pytest.approx(0, abs=1e-9)
    forces = context.getState(forces=True).getForces(asNumpy=True)._value
    assert np.abs(forces).max() < 1e-3
    shaken = emd5925.positions + np.random.default_rng(4).normal(size=emd5925.positions.shape)
    moved = np.linalg.norm(shaken - emd5925.positions, axis=1)[restraint.atoms]
    expected = 0.5 * 5.0 * (np.maximum(moved - width, 0) ** 2).sum()
    assert energy_at(context, shaken) == pytest.approx(expected, rel=1e-6)
    image = energy_at(context, np.add(shaken, [90.0, 0, -180.0]))
    assert image == pytest.approx(expected, rel=1e-6) if periodic else image > 1000 * expected
    violations = restraint.violations(shaken)
    assert len(violations) == (moved > width + 1).sum() > 0
    assert violations[0].value == pytest.approx(moved.max()) and violations[0].target == 0


def test_bad_places(kinase: Model) -> None:
    for options, message in (
        ({"atoms": "name XX"}, "selects nothing"),
        ({"width": -1.0}, "width"),
        ({"force_constant": float("nan")}, "force_constant must be 0 or more"),
    ):
        with pytest.raises(InputError, match=message):
            PositionalRestraint(kinase.topology, kinase.positions, **options)
