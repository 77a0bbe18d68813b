"""Atoms that move among fixed ones: against OpenMM's forces, SciPy's splines and closed forms, and bad input."""

from __future__ import annotations

import numpy as np
import openmm
import pytest
import torch

from openmm_density.kernels import compilation
from openmm_density.kernels.local_dynamics import (
    LocalDynamics,
    LocalTerms,
    MapTerms,
    PairTerms,
    SplineMap,
    Terms,
)
from openmm_density.kernels.torsion_maps import pack_torsions, reference, spline_nodes

from ..contexts import context_of, energy_of, forces_of, system_of

MOVING, ATOMS = 9, 14
KINDS = ("bonds", "angles", "torsions", "held", "pairs")


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    if not compilation.kernels_serve(["local_dynamics"]):
        pytest.skip("no C++ compiler")


def places(seed: int = 1) -> np.ndarray:
    """Return positions in nm, none of them nearer than a bond's length, as nothing is in molecules."""
    random = np.random.default_rng(seed)
    found = [np.zeros(3)]
    while len(found) < ATOMS:
        trial = random.uniform(0, 0.5, 3)
        if min(np.linalg.norm(trial - each) for each in found) > 0.1:
            found.append(trial)
    return np.array(found)


def some(size: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Return members of terms, of each of which an atom moves."""
    rows = [random.choice(ATOMS, size, replace=False) for _ in range(count)]
    return np.array([row for row in rows if (row < MOVING).any()])


def terms(*kept: str, seed: int = 2) -> LocalTerms:
    """Return terms of which only those of some kinds are there."""
    random = np.random.default_rng(seed)

    def of(kind: str, size: int, *columns: tuple[float, float]) -> Terms:
        members = some(size, 12, random)
        values = np.stack([random.uniform(*column, len(members)) for column in columns], axis=1)
        return Terms(members, values) if kind in kept else Terms(members[:0], values[:0])

    bonds = of("bonds", 2, (0.1, 0.2), (1e3, 1e5))
    angles = of("angles", 3, (1.5, 2.5), (100, 500))
    torsions = of("torsions", 4, (1, 4), (0, 3), (1, 20))
    torsions = torsions._replace(
        parameters=np.concatenate([torsions.parameters[:, :1].round(), torsions.parameters[:, 1:]], axis=1)
    )
    # Some torsions have several terms, side by side.
    torsions = Terms(*(np.repeat(each, 2, axis=0) for each in torsions))
    torsions.parameters[1::2, 0] += 1
    held = of("held", 4, (-3, 3), (0, 0.5), (100, 1000))
    there = "pairs" in kept
    pairs = PairTerms(
        radii=random.uniform(0.1, 0.2, ATOMS),
        polar=random.integers(0, 2, ATOMS),
        weights=random.uniform(1, 8, ATOMS),
        excluded=some(2, 10, random),
        cutoff=0.4,
        repulsion=1e4 if there else 0.0,
        allowance=0.05,
        width=0.02,
        overlapping=3.0 if there else 0.0,
    )
    density = SplineMap(np.zeros((4, 4, 4)), np.eye(3), np.zeros(3), np.ones(3), np.ones(3), 0.0)
    return LocalTerms(random.uniform(12, 16, MOVING), bonds, angles, torsions, held, [], pairs, density)


def forces(given: LocalTerms, hardness: float) -> list[openmm.Force]:
    bonds, angles, torsions = (
        openmm.HarmonicBondForce(),
        openmm.HarmonicAngleForce(),
        openmm.PeriodicTorsionForce(),
    )
    for members, (length, stiffness) in zip(given.bonds.members.tolist(), given.bonds.parameters.tolist()):
        bonds.addBond(*members, length, stiffness)
    for members, (angle, stiffness) in zip(given.angles.members.tolist(), given.angles.parameters.tolist()):
        angles.addAngle(*members, angle, stiffness)
    for members, (times, phase, stiffness) in zip(
        given.torsions.members.tolist(), given.torsions.parameters.tolist()
    ):
        torsions.addTorsion(*members, int(times), phase, stiffness)
    held = openmm.CustomTorsionForce(
        "0.5*k*max(0, min(apart, 6.283185307179586 - apart) - t)^2; apart = abs(theta - target)"
    )
    for name in ("target", "t", "k"):
        held.addPerTorsionParameter(name)
    for members, parameters in zip(given.held.members.tolist(), given.held.parameters.tolist()):
        held.addTorsion(*members, parameters)
    own = given.pairs
    pairs = openmm.CustomNonbondedForce(
        f"{hardness}*0.5*{own.repulsion}*max(0, radius1 + radius2 - {own.allowance}*polar1*polar2 - r)^2"
        f" + {own.overlapping}*weight1*weight2*exp(-r^2/{own.width})"
    )
    for name in ("radius", "polar", "weight"):
        pairs.addPerParticleParameter(name)
    for parameters in zip(own.radii.tolist(), own.polar.tolist(), own.weights.tolist()):
        pairs.addParticle(parameters)
    fixed = [(a, b) for a in range(MOVING, ATOMS) for b in range(a) if b >= MOVING]
    for a, b in {tuple(sorted(pair)) for pair in [*own.excluded.tolist(), *fixed]}:
        pairs.addExclusion(a, b)
    pairs.setNonbondedMethod(pairs.CutoffNonPeriodic)
    pairs.setCutoffDistance(own.cutoff)
    return [bonds, angles, torsions, held, pairs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hardness", [1.0, 0.05])
def test_terms_are_those_of_openmm(kind: str, hardness: float) -> None:
    given = terms(kind)
    context = context_of(system_of(ATOMS, forces(given, hardness)[KINDS.index(kind)]))
    context.setPositions(places())
    energy, gradient = LocalDynamics(given).energy(places(), hardness)
    wanted = -forces_of(context)[:MOVING]
    assert abs(wanted).max() > 10
    assert energy == pytest.approx(energy_of(context), rel=1e-5)
    np.testing.assert_allclose(gradient, wanted, atol=2e-5 * abs(wanted).max())


def test_maps_are_those_of_two_torsions() -> None:
    random = np.random.default_rng(3)
    members, of_term, signs = some(5, 12, random), random.integers(0, 2, 12), random.choice([-1.0, 1.0], 12)
    nodes = spline_nodes(random.normal(size=(2, 12, 12)))
    given = terms()._replace(
        maps=[MapTerms(members, of_term[: len(members)], signs[: len(members)], nodes.numpy(), 7.0)]
    )
    packed = pack_torsions(members, of_term[: len(members)], signs[: len(members)], ATOMS)
    wanted, slope = reference.torsion_maps(torch.from_numpy(places()), *packed, nodes)
    energy, gradient = LocalDynamics(given).energy(places())
    assert energy == pytest.approx(7.0 * float(wanted), rel=1e-6)
    np.testing.assert_allclose(gradient, 7.0 * slope.numpy()[:MOVING], atol=1e-4 * float(abs(slope).max()))


def in_a_map(seed: int = 4) -> tuple[LocalTerms, np.ndarray]:
    """Return terms with a map of skewed axes, and its coefficients."""
    random = np.random.default_rng(seed)
    coefficients = random.normal(size=(12, 13, 14)).astype(np.float32)
    to_index = np.array([[1.0, 0.5, 12.0], [-1.0, 13.0, 0.0], [14.0, 1.0, 0.5]])
    density = SplineMap(coefficients, to_index, np.full(3, 2.5), np.ones(3), np.full(3, 9.0), 5.0)
    return terms()._replace(density=density), coefficients


def test_the_gradient_is_the_derivative_of_the_energy() -> None:
    given = in_a_map()[0]._replace(**{kind: getattr(terms(*KINDS), kind) for kind in KINDS})
    dynamics, positions = LocalDynamics(given), places()
    _, gradient = dynamics.energy(positions)
    for atom in range(MOVING):
        step = np.zeros_like(positions)
        step[atom] = 1e-4
        change = dynamics.energy(positions + step)[0] - dynamics.energy(positions - step)[0]
        assert change == pytest.approx(2e-4 * gradient[atom].sum(), rel=2e-3, abs=2e-3)


def test_minimising_ends_where_bonds_are_as_long_as_they_should_be() -> None:
    given = terms()._replace(
        bonds=Terms(np.array([[0, 9], [1, 0], [2, 9]]), np.array([[0.15, 1e5], [0.12, 2e5], [0.2, 3e4]]))
    )
    energy, found = LocalDynamics(given).minimized(places(), 200, tolerance=1e-4)
    lengths = np.linalg.norm(found[[0, 1, 2]] - found[[9, 0, 9]], axis=1)
    np.testing.assert_allclose(lengths, [0.15, 0.12, 0.2], atol=1e-6)
    assert energy == pytest.approx(0.0, abs=1e-6)
    np.testing.assert_array_equal(found[MOVING:], places()[MOVING:])


def test_energy_is_kept_in_dynamics_in_which_the_list_of_pairs_is_made_anew() -> None:
    given = terms("bonds", "pairs")
    dynamics = LocalDynamics(given)
    # A cut-off beyond all atoms: at a step of the energy nothing would be kept.
    dynamics = LocalDynamics(given._replace(pairs=given.pairs._replace(cutoff=2.0)))
    _, positions = dynamics.minimized(places(), 100)
    velocities = np.random.default_rng(5).normal(0, 1.0, (MOVING, 3))
    totals = []
    for _ in range(40):
        positions, velocities = dynamics.moved(positions, velocities, 50, 0.0002)
        # Velocities are half a step behind.
        at = velocities - 0.0001 * dynamics.energy(positions)[1] / given.masses[:, None]
        totals.append(dynamics.energy(positions)[0] + 0.5 * (given.masses[:, None] * at**2).sum())
    assert np.ptp(totals) < 0.02 * (0.5 * (given.masses[:, None] * at**2).sum())
    assert np.linalg.norm(positions - places(), axis=1).max() > 0.1


def test_the_same_calls_give_the_same_bits() -> None:
    dynamics = LocalDynamics(terms(*KINDS))
    first, second = (dynamics.moved(places(), np.zeros((MOVING, 3)), 30, 0.001)[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert dynamics.minimized(places(), 30)[0] == dynamics.minimized(places(), 30)[0]


@pytest.mark.parametrize("lost", [np.nan, np.inf, 1e30])
def test_atoms_that_are_nowhere_are_no_harm(lost: float) -> None:
    positions = places()
    positions[2] = lost
    dynamics = LocalDynamics(in_a_map()[0]._replace(**{kind: getattr(terms(*KINDS), kind) for kind in KINDS}))
    dynamics.energy(positions)
    dynamics.minimized(positions, 20)
    dynamics.moved(positions, np.zeros((MOVING, 3)), 20, 0.001)


def test_what_does_not_fit_is_refused() -> None:
    sound = terms(*KINDS)
    for bad in (
        sound._replace(bonds=Terms(np.array([[0, ATOMS]]), np.ones((1, 2)))),
        sound._replace(angles=Terms(np.array([[0, -1, 2]]), np.ones((1, 2)))),
        sound._replace(torsions=Terms(np.array([[0, 1, 2, 3]]), np.ones((1, 2)))),
        sound._replace(masses=np.ones(ATOMS + 1)),
        sound._replace(pairs=sound.pairs._replace(radii=np.ones(3))),
        sound._replace(pairs=sound.pairs._replace(excluded=np.array([[0, ATOMS]]))),
        sound._replace(density=sound.density._replace(coefficients=np.zeros((3, 4, 4)))),
        sound._replace(maps=[MapTerms(np.zeros((1, 5), int), [2], [1.0], np.zeros((2, 4, 4, 4)))]),
    ):
        with pytest.raises(ValueError, match="of local dynamics have a wrong shape, or an index"):
            LocalDynamics(bad)
    with pytest.raises(ValueError, match="positions of local dynamics"):
        LocalDynamics(sound).energy(places()[1:])
    with pytest.raises(ValueError, match="velocities of local dynamics"):
        LocalDynamics(sound).moved(places(), places(), 1, 0.001)
