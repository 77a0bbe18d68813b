"""Our solver of constraints on the CPU platform, against OpenMM's Reference platform."""

import numpy as np
import openmm
import pytest

from openmm_density.base.errors import InputError
from openmm_density.energies.forces import backend_problem
from openmm_density.energies.native_force import context_with_own_constraints
from openmm_density.models import prepare, read_model

from ...contexts import context_of

pytestmark = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

TOLERANCE = 1e-8
CPU = openmm.Platform.getPlatformByName("CPU")


def on_cpu(system, threads=2):
    return context_with_own_constraints(
        system, openmm.VerletIntegrator(0.001), CPU, {"Threads": str(threads)}
    )


def on_reference(system):
    return context_of(system)


def constrained(context, positions, velocities):
    """Positions (nm) and velocities of a Context once both are constrained."""
    context.setPositions(positions)
    context.applyConstraints(TOLERANCE)
    context.setVelocities(velocities)
    context.applyVelocityConstraints(TOLERANCE)
    state = context.getState(positions=True, velocities=True)
    return state.getPositions(asNumpy=True)._value, state.getVelocities(asNumpy=True)._value


def constraints_of(system):
    every = [system.getConstraintParameters(i) for i in range(system.getNumConstraints())]
    return [(i, j, distance._value) for i, j, distance in every]


def disturbed(positions, by=0.01):
    random = np.random.default_rng(0)
    return positions + random.normal(0.0, by, positions.shape), random.normal(size=positions.shape)


@pytest.fixture(scope="module")
def protein(small_data):
    """The System of a protein and its positions in nm."""
    prepared = prepare(read_model(small_data / "emd5925_frag/5925_native.pdb"))
    return prepared.system(), prepared.positions / 10


def of_molecules(*molecules):
    """Return the System of molecules given as masses, constraints and positions (nm), and the positions."""
    system, places = openmm.System(), []
    for masses, constraints, positions in molecules:
        first = system.getNumParticles()
        for mass in masses:
            system.addParticle(mass)
        for i, j in constraints:
            apart = np.linalg.norm(np.subtract(positions[i], positions[j]))
            system.addConstraint(first + i, first + j, apart)
        places += positions
    return system, np.array(places)


TETRAHEDRON = [
    [0, 0, 0],
    [0.06, 0.06, 0.06],
    [0.06, -0.06, -0.06],
    [-0.06, 0.06, -0.06],
    [-0.06, -0.06, 0.06],
]
METHANE = [12, 1, 1, 1, 1], [(0, 1), (2, 0), (0, 3), (0, 4)], TETRAHEDRON
HYDROGEN = [1, 1], [(1, 0)], [[1, 0, 0], [1.07, 0, 0]]
# The two hydrogens of water are constrained as well, and the atoms of a chain of three bonds each to the next.
WATER = [16, 1, 1], [(0, 1), (0, 2), (1, 2)], [[0, 1, 0], [0.0757, 1.0586, 0], [-0.0757, 1.0586, 0]]
CHAIN = [12, 12, 12, 1], [(0, 1), (1, 2), (2, 3)], [[0, 0, 1], [0.15, 0, 1], [0.2, 0.14, 1], [0.3, 0.14, 1]]


def test_bonds_of_a_protein_as_by_openmm(protein):
    system, positions = protein
    given = disturbed(positions)
    ours, expected = constrained(on_cpu(system), *given), constrained(on_reference(system), *given)
    for found, known in zip(ours, expected):
        np.testing.assert_allclose(found, known, rtol=0, atol=1e-7)


@pytest.mark.parametrize("molecules", [[METHANE], [HYDROGEN], [METHANE, WATER, CHAIN, HYDROGEN], [WATER]])
def test_stars_and_what_forms_none_hold(molecules):
    system, positions = of_molecules(*molecules)
    moved, velocities = constrained(on_cpu(system), *disturbed(positions, 0.005))
    for i, j, distance in constraints_of(system):
        bond = moved[i] - moved[j]
        assert np.linalg.norm(bond) == pytest.approx(distance, abs=1e-8)
        assert bond @ (velocities[i] - velocities[j]) == pytest.approx(0.0, abs=1e-7)


def test_momentum_stays(protein):
    system, positions = protein
    masses = np.array([system.getParticleMass(i)._value for i in range(system.getNumParticles())])
    given, speeds = disturbed(positions)
    moved, velocities = constrained(on_cpu(system), given, speeds)
    np.testing.assert_allclose(masses @ moved, masses @ given, rtol=1e-10)
    np.testing.assert_allclose(masses @ velocities, masses @ speeds, rtol=0, atol=1e-7)


def test_the_system_keeps_its_constraints(protein):
    system, _ = protein
    before = openmm.XmlSerializer.serialize(system)
    context = on_cpu(system)
    assert context.getSystem().getNumConstraints() == system.getNumConstraints() > 0
    assert openmm.XmlSerializer.serialize(system) == before
    with pytest.raises(openmm.OpenMMException, match="property"):
        context_with_own_constraints(system, openmm.VerletIntegrator(0.001), CPU, {"Speed": "1"})
    assert openmm.XmlSerializer.serialize(system) == before


@pytest.mark.parametrize(
    "masses, constraints", [([12, 0], [(0, 1)]), ([12, 1], [(0, 1), (1, 0)]), ([12, 1], [(0, 5)])]
)
def test_what_openmm_refuses_it_refuses_here(masses, constraints):
    system, _ = of_molecules((masses, [], [[0, 0, 0], [0.1, 0, 0]]))
    for pair in constraints:
        system.addConstraint(*pair, 0.1)
    with pytest.raises(openmm.OpenMMException) as here:
        on_cpu(system)
    with pytest.raises(openmm.OpenMMException) as there:
        on_reference(system)
    assert str(here.value) == str(there.value)


def test_other_platforms_are_refused():
    system, _ = of_molecules(METHANE)
    reference = openmm.Platform.getPlatformByName("Reference")
    with pytest.raises(InputError, match="must be the CPU platform, found Reference"):
        context_with_own_constraints(system, openmm.VerletIntegrator(0.001), reference, {})
    assert system.getNumConstraints() == 4


def test_any_number_of_threads_gives_the_same_bits():
    copies = [METHANE] * 3500
    system, positions = of_molecules(*copies)
    given = disturbed(positions, 0.005)
    one, three = (constrained(on_cpu(system, threads), *given) for threads in (1, 3))
    for found, other in zip(one, three):
        assert (found == other).all()


def test_positions_that_are_no_numbers_harm_no_others():
    system, positions = of_molecules(METHANE, METHANE)
    given, velocities = disturbed(positions, 0.005)
    expected = constrained(on_cpu(system), given, velocities)[0]
    given[1] = np.nan
    assert (constrained(on_cpu(system), given, velocities)[0][5:] == expected[5:]).all()
