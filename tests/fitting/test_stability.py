"""Blow-ups: what is found, named, rolled back and tried again."""

from dataclasses import replace

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.fitting.dynamics import Dynamics
from openmm_density.fitting.stability import FARTHEST, Safeguard, Unstable

from ..fragments import RESOLUTION, fragment, map_of

NAMES = ("N", "CA", "C", "O", "CB")


@pytest.fixture
def leucine():
    topology = app.Topology()
    residue = topology.addResidue("LEU", topology.addChain("A"), "45")
    for name in NAMES:
        topology.addAtom(name, None, residue)
    system = openmm.System()
    force = openmm.CustomExternalForce("50*x^2 + slope*y")
    force.addGlobalParameter("slope", 0.0)
    for index in range(len(NAMES)):
        system.addParticle(12.0)
        force.addParticle(index)
    system.addForce(force)
    context = openmm.Context(
        system, openmm.LangevinIntegrator(300, 1, 0.002), openmm.Platform.getPlatformByName("Reference")
    )
    context.setPositions(np.arange(15.0).reshape(5, 3) / 10)
    context.setVelocities(np.zeros((5, 3)))
    return context, Safeguard(topology, system)


def positions_of(context):
    return context.getState(positions=True).getPositions(asNumpy=True).value_in_unit(unit.nanometer)


def moved(context, atom, to):
    positions = np.array(positions_of(context))
    positions[atom] = to
    context.setPositions(positions)


def test_what_is_sound_passes(leucine):
    context, safeguard = leucine
    motion = safeguard.check(context, 300.0, energy=True)
    assert np.array_equal(motion.positions, positions_of(context)) and not motion.velocities.any()


@pytest.mark.parametrize(
    ("to", "what"),
    [
        ([np.nan, 0.0, 0.0], "positions of A LEU 45 O are not numbers"),
        ([0.0, np.inf, 0.0], "positions of A LEU 45 O are not numbers"),
        ([1e38, 0.0, 0.0], "A LEU 45 O flew .* Å away"),
        ([2 * FARTHEST, 0.0, 0.0], "A LEU 45 O flew 92.2 Å away"),
    ],
)
def test_atoms_that_are_lost_are_named(leucine, to, what):
    context, safeguard = leucine
    safeguard.begin(positions_of(context))
    moved(context, 3, to)
    with pytest.raises(Unstable, match=what):
        safeguard.check(context)


def test_velocities_and_energies_are_looked_at(leucine):
    context, safeguard = leucine
    velocities = np.zeros((5, 3))
    velocities[1] = 20.0
    context.setVelocities(velocities)
    safeguard.check(context)
    with pytest.raises(Unstable, match="A LEU 45 CA became far too fast"):
        safeguard.check(context, 300.0)
    velocities[1] = np.nan
    context.setVelocities(velocities)
    with pytest.raises(Unstable, match="velocities of A LEU 45 CA are not numbers"):
        safeguard.check(context)
    context.setVelocities(np.zeros((5, 3)))
    context.setParameter("slope", np.nan)
    with pytest.raises(Unstable, match="energy is not a number, and the forces on A LEU 45 N"):
        safeguard.check(context, energy=True)


def test_a_molecule_that_a_barostat_put_back_has_not_flown(leucine):
    topology = leucine[1]._topology
    system = openmm.System()
    force = openmm.NonbondedForce()
    force.setNonbondedMethod(openmm.NonbondedForce.CutoffPeriodic)
    for _ in NAMES:
        system.addParticle(12.0)
        force.addParticle(0.0, 0.3, 0.0)
    system.addForce(force)
    system.setDefaultPeriodicBoxVectors(*(np.eye(3) * 8.0))
    context = openmm.Context(
        system, openmm.VerletIntegrator(0.001), openmm.Platform.getPlatformByName("Reference")
    )
    context.setPositions(np.zeros((5, 3)))
    safeguard = Safeguard(topology, system)
    safeguard.check(context)
    moved(context, 2, [8.1, -8.0, 15.9])
    safeguard.check(context)
    moved(context, 2, [8.1, -4.0, 12.0])
    with pytest.raises(Unstable, match="A LEU 45 C flew"):
        safeguard.check(context)


def test_what_blows_up_is_rolled_back_and_tried_more_gently(leucine):
    context, safeguard = leucine
    before = positions_of(context)
    begun_at = []

    def attempt(to):
        begun_at.append(np.array_equal(positions_of(context), before))
        moved(context, 0, to)
        return to[0]

    ways = [lambda: attempt([np.nan, 0, 0]), lambda: attempt([1e30, 0, 0]), lambda: attempt([0.5, 0, 0])]
    assert safeguard.run(context, ways) == 0.5
    assert begun_at == [True, True, True]
    assert positions_of(context)[0, 0] == 0.5
    before = positions_of(context)
    with pytest.raises(Unstable, match="A LEU 45 N flew"):
        safeguard.run(context, ways[:2])
    assert np.array_equal(positions_of(context), before)


def test_errors_of_openmm_that_are_no_blow_up_are_passed_on(leucine):
    def fails():
        raise openmm.OpenMMException("out of memory")

    with pytest.raises(openmm.OpenMMException, match="out of memory"):
        leucine[1].run(leucine[0], [fails])


# What injects blow-ups into fits.


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", (1.0, -0.8, 0.6), 12), map_of(12, 0.1, 0, folder)


def fit_of(parts, protocol, **options):
    options = {"threads": 1, "report_interval": 40, "save_interval": 40, "platform": "CPU", **options}
    return FlexibleFit(*parts, RESOLUTION, protocol, **options)


def blow_up_in(monkeypatch, times, atoms=(5, 6)):
    """Make the first blocks of steps leave atoms at NaN, which CUDA does not notice; return their step sizes."""
    steps = Dynamics.step
    sizes = []

    def blown(self, context, length, stop=None):
        done = steps(self, context, length, stop)
        sizes.append(context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond))
        if len(sizes) <= times:
            positions = np.array(positions_of(context))
            positions[list(atoms)] = np.nan
            context.setPositions(positions)
        return done

    monkeypatch.setattr(Dynamics, "step", blown)
    return sizes


SHORT = dict(minimize_first=40, minimize_last=5)


@pytest.mark.parametrize("times", [1, 2])
def test_a_blow_up_while_warming_up_is_not_blamed_on_the_map(parts, monkeypatch, times):
    protocol = replace(find_protocol("quick", RESOLUTION), strength="auto", **SHORT).with_steps(40)
    sizes = blow_up_in(monkeypatch, times)
    result = fit_of(parts, protocol).run()
    assert sizes[: times + 1] == pytest.approx([4.0, 1.0, 0.25][: times + 1])
    assert np.isfinite(result.final).all() and 5.0 <= result.strength <= 200.0
    assert result.blow_ups == []
