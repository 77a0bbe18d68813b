"""Our kernel for `NonbondedForce` on the CPU platform, against OpenMM's Reference platform."""

from functools import partial

import numpy as np
import openmm
import pytest

from openmm_density.energies.forces import backend_problem
from openmm_density.energies.native_force import own_kernels
from openmm_density.fitting.platforms import make_context, platform_named
from openmm_density.kernels.compilation import BuildError, commands, loading
from openmm_density.models import prepare, read_model

from ...contexts import context_of, energy_of, forces_of, system_of
from .on_cpu import assert_alike, assert_as_reference, found, on_cpu

pytestmark = pytest.mark.skipif(
    backend_problem("NativeForce") is not None, reason=f"NativeForce: {backend_problem('NativeForce')}"
)

METHODS = openmm.NonbondedForce


def nonbonded_of(system):
    return next(force for force in system.getForces() if isinstance(force, openmm.NonbondedForce))


@pytest.fixture(scope="module", params=["protein", "DNA in implicit solvent"])
def molecule(request, small_data):
    """A System of nonbonded forces alone, and positions in Å, far from the origin."""
    of_dna = request.param != "protein"
    path = "zoo/1bna_duplex.pdb" if of_dna else "emd5925_frag/5925_native.pdb"
    prepared = prepare(read_model(small_data / path), solvent="obc" if of_dna else "none")
    whole = prepared.system(constraints=None)
    kinds = openmm.NonbondedForce, openmm.GBSAOBCForce
    kept = [type(force)(force) for force in whole.getForces() if isinstance(force, kinds)]
    assert len(kept) == 1 + of_dna and nonbonded_of(whole).getNumExceptions()
    return system_of(whole.getNumParticles(), *kept), prepared.positions + 500.0


def of_argon(n, exceptions=(), **settings):
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(settings.get("method", METHODS.CutoffNonPeriodic))
    force.setCutoffDistance(0.9)
    force.setReactionFieldDielectric(settings.get("dielectric", 78.3))
    for i in range(n):
        force.addParticle(0.4 * (-1) ** i, 0.3 + 0.01 * (i % 5), 0.2 * (i % 3))
    for exception in exceptions:
        force.addException(*exception)
    return force


def scattered(n):
    """Positions in Å, no two closer than 3 Å."""
    side = int(np.ceil(n ** (1 / 3)))
    lattice = 3.6 * np.stack(np.meshgrid(*[np.arange(side)] * 3), axis=-1).reshape(-1, 3)[:n]
    return lattice + np.random.default_rng(n).uniform(-0.3, 0.3, (n, 3))


def test_energy_and_forces_are_those_of_reference(molecule):
    system, positions = molecule
    assert_as_reference(on_cpu(system, positions), system, positions)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 100])
@pytest.mark.parametrize("dielectric", [1.0, 78.3])
def test_systems_of_any_size_and_atoms_without_partners(n, dielectric):
    positions = scattered(n)
    positions[-1] += 80.0
    # The second of them across more than the cut-off.
    exceptions = [(0, 1, 0.1, 0.3, 0.5), (0, n - 1, -0.2, 0.4, 0.3), (1, n - 1, 0, 1, 0)][: 3 * (n > 2)]
    system = system_of(n, of_argon(n, exceptions, dielectric=dielectric))
    assert_as_reference(on_cpu(system, positions), system, positions)


def test_a_kept_list_gives_what_a_new_one_does(molecule):
    system, positions = molecule
    moving = on_cpu(system, positions)
    random = np.random.default_rng(1)
    shake = partial(random.uniform, -0.15, 0.15, positions.shape)
    turned = (positions - positions[0]) @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    for there in (positions, positions + shake(), positions + shake(), turned):  # the last beyond the skin
        positions = there
        moving.setPositions(positions / 10)
        assert_alike(found(moving), found(on_cpu(system, positions)))
    assert_as_reference(moving, system, positions)


def test_atoms_that_come_near_after_a_list_was_made_interact():
    # Two clusters that lie farther apart than the cut-off and the skin, and approach each other by more than half of the skin.
    cluster = scattered(40)
    width = np.ptp(cluster[:, 0])
    both = np.concatenate([cluster, cluster + np.array([width + 11.1, 0, 0])])
    system = system_of(80, of_argon(80))
    moving = on_cpu(system, both)
    apart = assert_as_reference(moving, system, both)
    near = both + np.where(np.arange(80)[:, None] < 40, [1.8, 0, 0], [-1.8, 0, 0])
    moving.setPositions(near / 10)
    assert np.abs(assert_as_reference(moving, system, near) - apart).max() > 0.1
    moving.setPositions(both / 10)
    assert_as_reference(moving, system, both)


def test_an_atom_that_has_flown_off_takes_no_digits_from_the_others():
    positions = scattered(100)
    positions[0] += 1e7
    system = system_of(100, of_argon(100))
    assert_as_reference(on_cpu(system, positions), system, positions)


def test_any_number_of_threads_gives_the_same_bits(molecule):
    system, positions = molecule
    # Of a solvent OpenMM's threads have sums of their own.
    alone = system_of(system.getNumParticles(), openmm.NonbondedForce(nonbonded_of(system)))
    one = found(on_cpu(alone, positions, threads=1))
    for threads in (2, 3):
        energy, forces = found(on_cpu(alone, positions, threads=threads))
        assert energy == one[0] and (forces == one[1]).all()


def test_parameters_that_change_in_a_context_act(molecule):
    system, positions = molecule
    system = system_of(system.getNumParticles(), openmm.NonbondedForce(nonbonded_of(system)))
    context = on_cpu(system, positions)
    before = forces_of(context)
    force = nonbonded_of(system)
    every = [force.getExceptionParameters(number) for number in range(force.getNumExceptions())]
    number, (a, b, *_) = next((n, each) for n, each in enumerate(every) if each[4]._value)
    force.setExceptionParameters(number, a, b, 0.3, 0.3, 0.4)
    force.setParticleParameters(7, -0.8, 0.35, 0.6)
    force.updateParametersInContext(context)
    assert np.abs(assert_as_reference(context, system, positions) - before).max() > 1


def another_particle(force, context):
    force.addParticle(0.1, 0.3, 0.2)


def another_exception(force, context):
    force.addException(3, 40, 0.1, 0.3, 0.2)


def another_offset(force, context):
    force.addGlobalParameter("charge", 2.0)
    force.addParticleParameterOffset("charge", 3, 1.0, 0.0, 0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (another_particle, "number of particles"),
        (another_exception, "set of non-excluded exceptions"),
        (another_offset, "parameter offsets"),
    ],
)
def test_what_cannot_change_in_a_context_is_refused(change, said):
    force, positions = of_argon(60, [(0, 1, 0.1, 0.3, 0.5)]), scattered(60)
    system = system_of(60, force)
    context = on_cpu(system, positions)
    before = found(context)
    change(nonbonded_of(system), context)
    with pytest.raises(openmm.OpenMMException, match=f"updateParametersInContext: .*{said}.* changed"):
        nonbonded_of(system).updateParametersInContext(context)
    assert energy_of(context) == before[0]


def switched():
    force = of_argon(60)
    force.setUseSwitchingFunction(True)
    force.setSwitchingDistance(0.7)
    return force


def offset():
    force = of_argon(60)
    force.addGlobalParameter("charge", 2.0)
    force.addParticleParameterOffset("charge", 3, 1.0, 0.0, 0.1)
    return force


@pytest.mark.parametrize("make", [switched, offset, lambda: of_argon(60, method=METHODS.NoCutoff)])
def test_what_it_does_not_serve_is_left_to_openmm(make):
    system, positions = system_of(60, make()), scattered(60)
    (energy, forces), theirs = (found(on_cpu(system, positions, 1, own)) for own in (True, False))
    assert energy == theirs[0] and (forces == theirs[1]).all()


def test_contexts_made_otherwise_keep_openmms_kernel(molecule):
    system, positions = molecule
    before = found(on_cpu(system, positions, 1, own=False))
    on_cpu(system, positions, 1)
    after = found(on_cpu(system, positions, 1, own=False))
    assert before[0] == after[0] and (before[1] == after[1]).all()


def test_a_block_within_a_block_leaves_the_outer_one_as_it_was():
    system, positions = system_of(20, of_argon(20)), scattered(20)
    with own_kernels():
        on_cpu(system, positions)
        outer = on_cpu(system, positions, own=False)
    assert evaluates_by_ours(outer) and not evaluates_by_ours(on_cpu(system, positions, own=False))


def evaluates_by_ours(context):
    """By the words with which PME is refused."""
    with pytest.raises(openmm.OpenMMException) as refused:
        nonbonded_of(context.getSystem()).getPMEParametersInContext(context)
    return "this Context does not use PME" in str(refused.value)


def test_a_machine_without_the_cpu_platform_makes_its_contexts(monkeypatch):
    monkeypatch.setattr(
        "openmm_density.energies.native_force.cpu_platform.platform_names", lambda: ["Reference"]
    )
    with own_kernels():
        context_of(system_of(4, of_argon(4)), scattered(4))


def test_where_one_kernel_cannot_be_compiled_the_other_serves(monkeypatch):
    monkeypatch.setitem(loading._kernels, "bonded", BuildError("no compiler"))
    monkeypatch.setattr(commands, "_warned", set())
    system, positions = system_of(20, of_argon(20)), scattered(20)
    with pytest.warns(RuntimeWarning, match="^OpenMM computes angles and torsions, .*: no compiler") as told:
        context = make_context(system, openmm.VerletIntegrator(0.001), platform_named("CPU", 1))
    context.setPositions(positions / 10)
    assert evaluates_by_ours(context) and len(told) == 1


def test_atoms_in_one_place_have_finite_forces():
    system, positions = system_of(20, of_argon(20)), scattered(20)
    positions[4] = positions[5]
    energy, forces = found(on_cpu(system, positions))
    assert np.isfinite(energy) and np.isfinite(forces).all()
