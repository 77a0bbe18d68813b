"""Blow-ups: what is found, named, rolled back and tried again."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import openmm
import pytest
from openmm import app, unit

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.fitting import FlexibleFit, find_protocol, minimization
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.dynamics import Dynamics
from openmm_density.fitting.fit_run import FitRun
from openmm_density.fitting.interrupts import StopRequest
from openmm_density.fitting.protocols import Protocol, Stage
from openmm_density.fitting.stability import FARTHEST, Safeguard, Unstable
from openmm_density.fitting.stage_context import StageContext

from ..contexts import context_of
from ..fragments import RESOLUTION, fragment, map_of
from .changed_steps import blow_up_in

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


def test_where_nearly_all_fly_those_are_named_on_which_forces_were_largest():
    topology, system, force = app.Topology(), openmm.System(), openmm.CustomExternalForce("slope*x")
    residue = topology.addResidue("MOL", topology.addChain("A"), "7")
    force.addPerParticleParameter("slope")
    for index in range(60):
        topology.addAtom(f"C{index}", None, residue)
        system.addParticle(12.0)
        force.addParticle(index, [100.0 if index == 31 else 1.0])
    system.addForce(force)
    context = context_of(system)
    safeguard = Safeguard(topology, system)
    safeguard.begin(np.zeros((60, 3)))
    context.setPositions(np.full((60, 3), 1e9))
    with pytest.raises(Unstable, match=r"60 atoms flew .*; before, forces were largest on A MOL 7 C31"):
        safeguard.check(context)


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
    context = context_of(system)
    context.setPositions(np.zeros((5, 3)))
    safeguard = Safeguard(topology, system)
    safeguard.check(context)
    moved(context, 2, [8.1, -8.0, 15.9])
    safeguard.check(context)
    moved(context, 2, [8.1, -4.0, 12.0])
    with pytest.raises(Unstable, match="A LEU 45 C flew"):
        safeguard.check(context)


def test_errors_of_openmm_that_are_no_blow_up_are_passed_on(leucine):
    def fails():
        raise openmm.OpenMMException("out of memory")

    with pytest.raises(openmm.OpenMMException, match="out of memory"):
        leucine[1].run(leucine[0], [fails])


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", (1.0, -0.8, 0.6), 12), map_of(12, 0.1, 0, folder)


def fit_of(parts, protocol, **options):
    options = {"threads": 1, "report_interval": 40, "save_interval": 40, "platform": "CPU", **options}
    return FlexibleFit(*parts, RESOLUTION, protocol, **options)


SHORT = dict(minimize_first=40, minimize_last=5)


@pytest.mark.parametrize("times", [1, 2])
def test_a_blow_up_while_warming_up_is_not_blamed_on_the_map(parts, monkeypatch, times):
    protocol = replace(find_protocol("quick", RESOLUTION), strength="auto", **SHORT).with_steps(40)
    sizes = blow_up_in(monkeypatch, times)
    result = fit_of(parts, protocol).run()
    assert sizes[: times + 1] == pytest.approx([4.0, 1.0, 0.25][: times + 1])
    assert np.isfinite(result.final).all() and 5.0 <= result.strength <= 200.0
    assert result.blow_ups == []


def explode_once(monkeypatch, atoms=(20, 40)):
    """Set two atoms, once, to speeds at which nothing holds, and leave it to the platform what becomes of them."""
    steps, sizes = Dynamics.step, []

    def explode(self, context, length, stop=None):
        sizes.append(context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond))
        if len(sizes) == 1:
            velocities = np.zeros((context.getSystem().getNumParticles(), 3))
            velocities[list(atoms)] = [[3e5, 0, 0], [0, -3e5, 0]]
            context.setVelocities(velocities)
        return steps(self, context, length, stop)

    monkeypatch.setattr(Dynamics, "step", explode)
    return sizes


def nan_after(monkeypatch, times, atoms=(5, 6), of=lambda context: True):
    """Make the first minimisations leave atoms at NaN."""
    blown = []

    def spoilt(minimize, context, *args, **kwargs):
        minimize(context, *args, **kwargs)
        if of(context) and len(blown) < times:
            blown.append(context.getPlatform().getName())
            positions = np.array(positions_of(context))
            positions[list(atoms)] = np.nan
            context.setPositions(positions)

    for place, name in ((openmm.LocalEnergyMinimizer, "minimize"), (minimization, "minimize_stiff")):
        monkeypatch.setattr(place, name, partial(spoilt, getattr(place, name)))
    return blown


def is_whole(context):
    """Whether it is of the whole fragment with its force field, not an excerpt of it."""
    return any(isinstance(force, openmm.NonbondedForce) for force in context.getSystem().getForces())


FIXED = Protocol((Stage("draw", 40),), strength=20.0, **SHORT)


@pytest.mark.parametrize("times", [1, 2])
def test_a_minimisation_that_blows_up_is_tried_more_gently(parts, monkeypatch, times):
    blown = nan_after(monkeypatch, times, of=is_whole)
    fit = fit_of(parts, FIXED)
    result = fit.run()
    assert blown == ["CPU"] * times and np.isfinite(result.final).all() and result.blow_ups == []


def test_a_minimisation_that_always_blows_up_names_the_atoms(parts, monkeypatch):
    blown = nan_after(monkeypatch, 100, of=is_whole)
    fit = fit_of(parts, FIXED)
    names = [f"A {a.residue.name} {a.residue.id} {a.name}" for a in fit.prepared.topology.atoms()][5:7]
    with pytest.raises(SimulationError, match=f"cannot be minimised.*{names[0]}, {names[1]}") as caught:
        fit.run()
    assert blown == ["CPU", "CPU", "Reference"]  # the last in double precision
    assert not any(word in str(caught.value) for word in ("density", "map", "calibrat"))


def test_a_last_minimisation_that_blows_up_leaves_the_model_as_it_was(parts, monkeypatch):
    fit = fit_of(parts, FIXED)
    finalize = FitRun._finalize
    last = []

    def end(self, state, *others):
        last.append(state.positions * 10)
        nan_after(monkeypatch, 100, of=is_whole)
        return finalize(self, state, *others)

    monkeypatch.setattr(FitRun, "_finalize", end)
    result = fit.run()
    assert result.final == pytest.approx(last[0], abs=1e-5)
    (said,) = result.blow_ups
    assert "last minimisation was undone" in said and "are not numbers" in said


def test_a_blow_up_in_the_dynamics_begins_anew_with_small_steps(parts, monkeypatch):
    sizes = blow_up_in(monkeypatch, 1)
    result = fit_of(parts, FIXED).run()
    # As usual; then, after a careful minimisation, the first at a quarter of half the step.
    assert sizes == pytest.approx([4.0, 0.5, 2.0])
    (said,) = result.blow_ups
    assert "A MET 1" in said and "rolled back to step 0" in said
    assert np.isfinite(result.final).all()


@pytest.mark.parametrize("platform", ["CPU", "Reference"])
def test_atoms_that_explode_are_rolled_back(parts, monkeypatch, platform):
    fit = fit_of(parts, FIXED, platform=platform)
    sizes = explode_once(monkeypatch)
    result = fit.run()
    assert sizes == pytest.approx([4.0, 0.5, 2.0]) and np.isfinite(result.final).all()
    (said,) = result.blow_ups
    # Theirs, or those of what they tear along or run into.
    assert re.search(r"A [A-Z]{3} \d+ \w+", said) and re.search(r"not numbers|flew|too fast", said)


def test_a_blow_up_after_a_resume_is_rolled_back(parts, monkeypatch, tmp_path):
    class Killed(Exception):
        pass

    def kill(step, *_):
        if step >= 60:
            raise Killed

    protocol = replace(FIXED, stages=(Stage("draw", 80),))
    options = {"report_interval": 20}
    with pytest.raises(Killed):
        fit_of(parts, protocol, **options).run(RunFolder(tmp_path), kill)
    sizes = blow_up_in(monkeypatch, 1)
    result = fit_of(parts, protocol, **options).run(RunFolder(tmp_path))
    assert sizes[:3] == pytest.approx([4.0, 0.5, 2.0])
    (said,) = result.blow_ups
    assert "rolled back to step 40" in said and np.isfinite(result.final).all()
    assert [row.step for row in result.rows] == [0, 20, 40, 60, 80, 80]


def test_nothing_is_calibrated_on_what_is_no_number(parts):
    fit = fit_of(parts, FIXED)
    context = StageContext(
        fit._run.engine, fit._run.initial_state(StopRequest()), fit.protocol.stages[0]
    ).context
    positions = np.array(positions_of(context))
    with pytest.raises(InputError, match="positions of A MET 1 CB are not numbers"):
        spoilt = 10 * positions
        spoilt[[a.name for a in fit.prepared.topology.atoms()].index("CB")] = np.inf
        fit.density.similarity(spoilt)
    positions[5] = np.nan
    context.setPositions(positions)
    with pytest.raises(SimulationError, match=r"of A MET 1 .* are not numbers, as the simulation"):
        fit.density.calibrate(context)
