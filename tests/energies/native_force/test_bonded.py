"""Our kernels for angles and torsions on the CPU platform, against OpenMM's Reference platform."""

import numpy as np
import openmm
import pytest

from openmm_density.energies.forces import backend_problem
from openmm_density.models import prepare, read_model

from ...contexts import context_of, energy_of, forces_of, system_of
from .on_cpu import assert_alike, assert_as_reference, found, on_cpu

pytestmark = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

KINDS = openmm.HarmonicAngleForce, openmm.PeriodicTorsionForce


@pytest.fixture(scope="module", params=["amber14", "charmm36", "DNA"])
def molecule(request, small_data):
    """A System of angles and torsions alone, and positions in Å, far from the origin."""
    path = "zoo/1bna_duplex.pdb" if request.param == "DNA" else "emd5925_frag/5925_native.pdb"
    forcefield = "amber14" if request.param == "DNA" else request.param
    prepared = prepare(read_model(small_data / path), forcefield)
    whole = prepared.system(constraints=None)
    kept = [type(force)(force) for force in whole.getForces() if isinstance(force, KINDS)]
    assert len(kept) == 2
    return system_of(whole.getNumParticles(), *kept), prepared.positions + 500.0


def folded(n):
    """Positions in Å of a chain that turns at random, its bonds of 1.5 Å at 60° to 120°."""
    random, places, along = np.random.default_rng(n), [np.zeros(3)], np.array([1.5, 0, 0])
    for _ in range(n - 1):
        places.append(places[-1] + along)
        aside = np.cross(along, random.normal(size=3))
        aside *= 1.5 / np.linalg.norm(aside)
        turn = np.radians(random.uniform(60, 120))
        along = np.cos(turn) * along + np.sin(turn) * aside
    return np.array(places)


def is_bent(places):
    """Whether no three of four places (4, 3) are so nearly on a line that float32 has few digits left."""
    along = np.diff(places, axis=0)
    along /= np.linalg.norm(along, axis=1)[:, None]
    return (np.linalg.norm(np.cross(along[1:], along[:-1]), axis=1) > 0.2).all()


def of_chain(n, n_terms, far=0.0):
    """Angles and torsions with random numbers, of atoms near each other or, in part, anywhere in the chain."""
    random, places = np.random.default_rng(n_terms), folded(n)
    angles, torsions = openmm.HarmonicAngleForce(), openmm.PeriodicTorsionForce()
    for _ in range(n_terms):
        begin = int(random.integers(n - 3))
        atoms = [begin, begin + 1, begin + 2, begin + 3]
        is_far = random.random() < far
        while is_far and not is_bent(places[atoms := random.choice(n, 4, replace=False).tolist()]):
            pass
        atoms = atoms[:: random.choice([1, -1])]
        angles.addAngle(*atoms[:3], random.uniform(0.3, np.pi), random.uniform(-50, 500))
        period = int(random.integers(1, 7))
        torsions.addTorsion(*atoms, period, random.uniform(-np.pi, np.pi), random.uniform(-20, 20))
    return system_of(n, angles, torsions)


def test_energy_and_forces_are_those_of_reference(molecule):
    system, positions = molecule
    assert_as_reference(on_cpu(system, positions), system, positions)
    shaken = positions + np.random.default_rng(1).uniform(-0.3, 0.3, positions.shape)
    assert_as_reference(on_cpu(system, shaken), system, shaken)


@pytest.mark.parametrize("n_terms", [0, 1, 7, 16, 17, 300, 3000])
@pytest.mark.parametrize("far", [0.0, 0.1])
def test_any_number_of_terms_of_any_atoms(n_terms, far):
    # All but the first of a quartet are merged; most terms of few atoms, and few of many.
    for n in (5, 2000):
        system, positions = of_chain(n, n_terms, far), folded(n)
        assert_as_reference(on_cpu(system, positions), system, positions)


def test_any_number_of_threads_gives_the_same_bits(molecule):
    cases = [molecule, (of_chain(60, 4000), folded(60)), (of_chain(3000, 20000, 0.01), folded(3000))]
    for system, positions in cases:
        one = found(on_cpu(system, positions, threads=1))
        for threads in (2, 3):
            energy, forces = found(on_cpu(system, positions, threads=threads))
            assert energy == one[0] and (forces == one[1]).all()


def test_a_small_deviation_of_an_angle_keeps_its_digits():
    force, positions = openmm.HarmonicAngleForce(), np.array([[1.5, 0, 0], [0, 0, 0], [0, 1.5, 0.0]])
    force.addAngle(0, 1, 2, np.pi / 2 - 1e-3, 400.0)
    system = system_of(3, force)
    ours, expected = (forces_of(make(system, positions)) for make in (on_cpu, context_of))
    np.testing.assert_allclose(ours, expected, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("ideal", [0.0, 1.9, np.pi])
@pytest.mark.parametrize("angle", [1e-3, 1.9, np.pi - 1e-3])
def test_angles_far_from_ideal(angle, ideal):
    positions = np.array([[1.5, 0, 0], [0, 0, 0], [1.2 * np.cos(angle), 1.2 * np.sin(angle), 0.0]])
    force = openmm.HarmonicAngleForce()
    force.addAngle(0, 1, 2, ideal, 400.0)
    system = system_of(3, force)
    if abs(angle - ideal) < 0.01:  # where float32 has few digits left
        assert np.abs(forces_of(on_cpu(system, positions))).max() < 20
    else:
        ours, expected = (forces_of(make(system, positions)) for make in (on_cpu, context_of))
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("ideal", "end"), [(0.0, -1.2), (np.pi, 1.2)])
def test_an_angle_half_a_turn_from_ideal_has_its_energy(ideal, end):
    force, positions = openmm.HarmonicAngleForce(), np.array([[1.5, 0, 0], [0, 0, 0], [end, 0, 0]])
    force.addAngle(0, 1, 2, ideal, 400.0)
    energy, forces = found(on_cpu(system_of(3, force), positions))
    assert energy == pytest.approx(200 * np.pi**2, rel=1e-6) and not forces.any()


@pytest.mark.parametrize("size", [1e-5, 1e5])
def test_torsions_of_bonds_of_any_length(size):
    force, positions = (
        openmm.PeriodicTorsionForce(),
        size * np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1.0]]),
    )
    force.addTorsion(0, 1, 2, 3, 2, 0.3, 5.0)
    system = system_of(4, force)
    ours, expected = (found(make(system, positions)) for make in (on_cpu, context_of))
    assert ours[0] == pytest.approx(expected[0], rel=1e-4)
    np.testing.assert_allclose(ours[1], expected[1], rtol=0, atol=1e-4 * np.abs(expected[1]).max())


def test_bonds_on_a_line_leave_forces_finite():
    positions = np.array([[0.0, 0, 0], [1.5, 0, 0], [3.0, 0, 0], [4.0, 1, 0]])
    system = of_chain(4, 20)
    energy, forces = found(on_cpu(system, positions))
    assert np.isfinite(energy) and np.isfinite(forces).all()


def test_parameters_that_change_in_a_context_act(molecule):
    system, positions = molecule
    system = system_of(system.getNumParticles(), *[type(force)(force) for force in system.getForces()])
    context = on_cpu(system, positions)
    before = forces_of(context)
    angles, torsions = (next(each for each in system.getForces() if isinstance(each, kind)) for kind in KINDS)
    angles.setAngleParameters(5, *angles.getAngleParameters(5)[:3], 1.2, 700.0)
    angles.updateParametersInContext(context)
    torsions.setTorsionParameters(9, *torsions.getTorsionParameters(9)[:4], 5, 0.7, 300.0)
    torsions.updateParametersInContext(context)
    after = assert_as_reference(context, system, positions)
    assert all(
        np.abs((after - before)[list(atoms)]).max() > 1
        for atoms in (angles.getAngleParameters(5)[:3], torsions.getTorsionParameters(9)[:4])
    )


def other_angle(angles, torsions):
    angles.setAngleParameters(0, 0, 1, 3, 1.0, 10.0)
    return angles


def another_torsion(angles, torsions):
    torsions.addTorsion(0, 1, 2, 3, 1, 0.0, 1.0)
    return torsions


def many_periods(angles, torsions):
    torsions.setTorsionParameters(0, *torsions.getTorsionParameters(0)[:4], 7, 0.0, 1.0)
    return torsions


@pytest.mark.parametrize(
    ("change", "said"),
    [(other_angle, "have changed"), (another_torsion, "have changed"), (many_periods, "number of periods")],
)
def test_what_cannot_change_in_a_context_is_refused(change, said):
    system, positions = of_chain(20, 30), folded(20)
    context = on_cpu(system, positions)
    before = energy_of(context)
    force = change(*system.getForces())
    with pytest.raises(openmm.OpenMMException, match=f"updateParametersInContext: .*{said}"):
        force.updateParametersInContext(context)
    assert energy_of(context) == before


def with_many_periods():
    system = of_chain(20, 30)
    many_periods(*system.getForces())
    return system


def in_a_box():
    system = of_chain(20, 30)
    for force in system.getForces():
        force.setUsesPeriodicBoundaryConditions(True)
    system.setDefaultPeriodicBoxVectors([2, 0, 0], [0, 2, 0], [0, 0, 2])
    return system


@pytest.mark.parametrize("make", [with_many_periods, in_a_box])
def test_what_it_does_not_serve_is_left_to_openmm(make):
    system, positions = make(), folded(20)
    assert_alike(found(on_cpu(system, positions)), found(context_of(system, positions)))


def test_contexts_made_otherwise_keep_openmms_kernels(molecule):
    system, positions = molecule
    before = found(on_cpu(system, positions, 1, own=False))
    ours = found(on_cpu(system, positions, 1))
    after = found(on_cpu(system, positions, 1, own=False))
    assert before[0] == after[0] and (before[1] == after[1]).all()
    assert (ours[1] != after[1]).any()
