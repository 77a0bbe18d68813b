"""Fits of a fragment of adenylate kinase: stages, interruptions and blow-ups."""

import json
import signal
from dataclasses import replace

import mdtraj
import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density import DensityMap
from openmm_density.base.errors import InputError, SimulationError
from openmm_density.base.stopwatch import Stopwatch
from openmm_density.fitting import minimization, stage_context
from openmm_density.fitting.checkpoints import STATE, TIMES, RunFolder
from openmm_density.fitting.dynamics import Dynamics
from openmm_density.fitting.fit_run import FitRun
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.interrupts import StopRequest
from openmm_density.fitting.minimization import Minimizer
from openmm_density.fitting.protocols import Protocol, Stage, find_protocol
from openmm_density.fitting.stability import Unstable
from openmm_density.fitting.stage_context import StageContext
from openmm_density.models import prepare

from ..fragments import RESOLUTION, fragment, map_of
from .changed_steps import blow_up_in
from .left_behind import kept_at

RESIDUES = 12

SHIFT = (1.0, -0.8, 0.6)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", SHIFT, RESIDUES), map_of(RESIDUES, 0.1, 0, folder)


def flexible_fit(parts, protocol=None, **options):
    model, density_map = parts
    protocol = protocol or replace(
        find_protocol("quick", RESOLUTION), strength=30.0, minimize_last=20
    ).with_steps(240)
    options = {"threads": 1, "report_interval": 40, "save_interval": 80, "platform": "CPU", **options}
    return FlexibleFit(model, density_map, RESOLUTION, protocol, **options)


class Killed(Exception):
    """As good as kill -9, between two steps."""


def killed_and_resumed(parts, folder, every, damage=lambda number: None, **options):
    """Run a fit to its end, killing it a little after each so many steps."""
    reached = 0

    def kill(step, total, stage, row):
        nonlocal reached
        if row is not None and step >= reached + every:
            reached = step
            raise Killed

    for number in range(100):
        damage(number)
        try:
            return flexible_fit(parts, **options).run(RunFolder(folder), kill), number
        except Killed:
            pass
    raise AssertionError("no end")


@pytest.fixture(scope="module")
def uninterrupted(parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return flexible_fit(parts).run(RunFolder(folder)), folder


def assert_same(a, b):
    assert np.array_equal(a.final, b.final) and np.array_equal(a.relaxed, b.relaxed)
    assert a.rows == b.rows and a.stages == b.stages and a.strength == b.strength


def test_a_resumed_fit_is_the_uninterrupted_one_bit_for_bit(parts, uninterrupted, tmp_path):
    whole, folder = uninterrupted
    result, kills = killed_and_resumed(parts, tmp_path, 90)
    assert kills == 2
    assert_same(result, whole)
    assert (tmp_path / "trajectory.dcd").read_bytes()[276:] == (folder / "trajectory.dcd").read_bytes()[276:]


def test_so_it_is_after_a_damaged_state(parts, uninterrupted, tmp_path):
    def damage(number):
        if number == 1:
            (tmp_path / STATE).write_bytes((tmp_path / STATE).read_bytes()[:1000])

    result, kills = killed_and_resumed(parts, tmp_path, 200, damage)
    assert kills == 1
    assert_same(result, uninterrupted[0])


def test_an_interrupted_fit_gives_what_there_is_and_goes_on_to_the_same_end(parts, uninterrupted, tmp_path):
    def interrupt(step, total, stage, row):
        if step == 200 and row is not None:
            signal.raise_signal(signal.SIGTERM)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    result = flexible_fit(parts).run(RunFolder(tmp_path), interrupt)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert result.interrupted and result.steps == 200
    assert result.stages[-1] == {
        **result.stages[-1],
        "name": "anneal",
        "steps": 200 - 168,
        "converged": False,
    }
    assert np.isfinite(result.final).all()
    written = json.loads((tmp_path / TIMES).read_text())["seconds_by_part"]
    assert sum(written.values()) >= result.wall_seconds > 0
    going_on = flexible_fit(parts)
    own = going_on.stopwatch.seconds_by_part
    rest = going_on.run(RunFolder(tmp_path))
    assert not rest.interrupted
    # Those of both, part for part; those of the same fit would not count twice.
    both = going_on.stopwatch.seconds_by_part
    assert both["preparation"] == pytest.approx(written["preparation"] + own["preparation"], abs=1e-3)
    assert rest.wall_seconds >= sum(written.values()) + sum(own.values())
    assert RunFolder(tmp_path).load_times(going_on.stopwatch) == {}
    assert RunFolder(tmp_path).load_times(Stopwatch()).keys() == both.keys()
    for damaged in ("", "[1]", '{"stopwatch": "0", "seconds_by_part": {"dynamics": NaN}}'):
        (tmp_path / TIMES).write_text(damaged)
        assert RunFolder(tmp_path).load_times(Stopwatch()) == {}
    assert_same(rest, uninterrupted[0])


@pytest.mark.parametrize(("number", "repeats"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_fit_goes_on_from_the_step_at_which_a_signal_came(number, repeats, parts, tmp_path, monkeypatch):
    """After SIGTERM where nothing repeats itself to the bit, as on a GPU."""
    monkeypatch.setattr("openmm_density.fitting.stage_run.repeats_itself", lambda *_: repeats)
    asked = []  # once: a row, measured in another thread, comes with this step or later

    def interrupt(step, *_):
        if step == 180 and not asked:
            asked.append(step)
            signal.raise_signal(number)

    options = {"report_interval": 20, "save_interval": 200}
    result = flexible_fit(parts, **options).run(RunFolder(tmp_path), interrupt)
    assert result.interrupted and result.steps == 180
    told = []
    rest = flexible_fit(parts, **options).run(RunFolder(tmp_path), lambda step, *_: told.append(step))
    assert (
        min(told) == 200 and not rest.interrupted
    )  # after its first steps; the last state before is of step 168
    assert [row.step for row in rest.rows[:-1]] == list(range(0, rest.steps + 1, 20))
    assert rest.cc_final > rest.cc_initial


def test_so_it_is_after_a_signal_in_the_last_minimisation(parts, uninterrupted, tmp_path, monkeypatch):
    whole, _ = uninterrupted
    fit = flexible_fit(parts)
    full = whole.strength * fit.density.n_fitted_atoms
    minimize, asked = Minimizer.minimize, []

    def interrupted(self, context, iterations, stop=None, *how):
        if dict(context.getParameters().items()).get("density_strength") == pytest.approx(full):
            signal.raise_signal(signal.SIGTERM)
            asked.append(stop.requested)
        minimize(self, context, iterations, stop, *how)

    with monkeypatch.context() as patch:
        patch.setattr(Minimizer, "minimize", interrupted)
        result = fit.run(RunFolder(tmp_path))
    assert asked == [True] and result.interrupted and result.steps == whole.steps
    assert_same(flexible_fit(parts).run(RunFolder(tmp_path)), whole)


def test_so_it_is_after_a_signal_while_the_strength_is_found(parts, tmp_path, monkeypatch):
    protocol = Protocol((Stage("draw", 40),), strength="auto", minimize_first=20, minimize_last=0)
    step, done = Dynamics.step, []

    def stopping(self, *arguments, **named):
        if not done:
            signal.raise_signal(signal.SIGTERM)
        done.append(step(self, *arguments, **named))
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Dynamics, "step", stopping)
        result = flexible_fit(parts, protocol).run(RunFolder(tmp_path))
    assert result.interrupted and result.steps == 0
    assert done == [0, 0] and result.strength == 0
    rest = flexible_fit(parts, protocol).run(RunFolder(tmp_path))
    assert not rest.interrupted and rest.steps == 40 and rest.strength > 0


def test_so_it_is_on_reference_with_the_density_every_second_step(parts, tmp_path):
    protocol = replace(
        find_protocol("quick", RESOLUTION), strength=30.0, density_interval=2, minimize_first=20
    )
    protocol = replace(protocol, minimize_last=0).with_steps(24)
    options = {"platform": "Reference", "report_interval": 4, "save_interval": 8, "protocol": protocol}
    shorter = fragment(tmp_path / "shorter.pdb", SHIFT, 5), parts[1]
    whole = flexible_fit(shorter, **options).run()
    result, kills = killed_and_resumed(shorter, tmp_path, 10, **options)
    assert kills == 2
    assert_same(result, whole)


def test_every_stage_is_run_with_what_it_asks_for(parts):
    protocol = Protocol(
        (
            Stage("warm up", 40, strength=0.0, restraints=("ss", "cis")),
            Stage("blurred", 40, strength=(0.2, 0.5), resolution=8.0, restraints=("cis",)),
            Stage("map", 40, adaptive=True),
            Stage("nothing", 0),
            Stage("cool", 40, temperature=(300, 10)),
        ),
        strength=30.0,
        minimize_last=5,
    )
    fit = flexible_fit(parts, protocol, report_interval=20)
    result = fit.run()
    assert [stage["name"] for stage in result.stages] == ["warm up", "blurred", "map", "nothing", "cool"]
    assert [stage["resolution"] for stage in result.stages] == [5.0, 8.0, 5.0, 5.0, 5.0]
    assert [stage["steps"] for stage in result.stages] == [40, 40, 40, 0, 40]
    # At the middle of the block of 40 steps that is the stage.
    assert result.stages[1]["strength"] == pytest.approx(30 * 0.2 * 2.5**0.5)
    assert [row.strength for row in result.rows[1:3]] == [0.0, 0.0]
    assert result.rows[1].density_energy == 0.0 < result.rows[4].density_energy
    start = fit._run.initial_state(StopRequest())
    states = [StageContext(fit._run.engine, start, stage).context for stage in protocol.stages[:2]]
    assert states[0].getParameter("secondary_structure_strength") > 0
    assert states[0].getParameter("chirality_strength") == 0.0
    assert states[1].getParameter("secondary_structure_strength") == 0.0
    assert states[1].getParameter("planarity_strength") == 0.0


def test_a_stage_ends_once_it_has_converged(parts, monkeypatch):
    monkeypatch.setattr("openmm_density.fitting.convergence.Plateau.update", lambda self, *_: True)
    protocol = Protocol(
        (Stage("hold", 4000, until_converged=True), Stage("end", 40)), strength=10.0, minimize_last=0
    )
    result = flexible_fit(parts, protocol).run()
    assert [(stage["steps"], stage["converged"]) for stage in result.stages] == [(40, True), (40, False)]
    assert result.steps == 80


def test_the_strength_is_calibrated_once_there_is_density(parts):
    protocol = replace(find_protocol("quick", RESOLUTION), minimize_last=0).with_steps(80)
    result = flexible_fit(parts, protocol).run()
    assert 5.0 <= result.strength <= 200.0
    assert result.stages[-2]["strength"] == pytest.approx(result.strength)
    assert result.stages[-1]["strength"] == pytest.approx(result.final_strength)


@pytest.mark.parametrize("match_blur", [True, False])
def test_gaussians_become_as_wide_as_the_map_shows_atoms(tmp_path, match_blur):
    there = fragment(tmp_path / "there.pdb", (0, 0, 0), RESIDUES)
    blurred = DensityMap.simulate(there.topology, there.positions, 1.5 * RESOLUTION, voxel_size=1.2)
    protocol = Protocol((Stage("hold", 40),), strength=10.0, minimize_last=0, match_blur=match_blur)
    result = flexible_fit((there, blurred), protocol).run()
    assert result.stages[0]["blur"] == pytest.approx(1.5 if match_blur else 1.0)
    assert result.stages[0]["resolution"] == RESOLUTION


def test_a_blow_up_is_rolled_back_to_the_last_state(parts, tmp_path, monkeypatch):
    check = Dynamics.checked
    blown = []

    def once(self, context, step, stage):
        if step == 120:
            blown.append(context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond))
            if len(blown) == 1:
                raise Unstable("it was made to")
        return check(self, context, step, stage)

    monkeypatch.setattr(Dynamics, "checked", once)
    fit = flexible_fit(parts)
    result = fit.run(RunFolder(tmp_path))
    assert blown == pytest.approx([4.0, 2.0])
    assert len(result.blow_ups) == 1 and "rolled back to step" in result.blow_ups[0]
    assert [row.step for row in result.rows] == [0, 40, 80, 120, 160, 200, 240, 240]
    topology = mdtraj.Topology.from_openmm(fit.prepared.topology)
    assert mdtraj.load(str(tmp_path / "trajectory.dcd"), top=topology).n_frames == 6
    assert result.stages[-1]["strength"] == pytest.approx(30.0)


def test_a_stage_after_one_that_blew_up_has_full_steps_and_strength(parts, monkeypatch):
    check = Dynamics.checked
    seen = []

    def twice(self, context, step, stage):
        seen.append((stage.name, step, context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond)))
        if len(seen) <= 2:
            raise Unstable("it was made to")
        return check(self, context, step, stage)

    monkeypatch.setattr(Dynamics, "checked", twice)
    protocol = Protocol(
        (Stage("hold", 40), Stage("free", 40)), strength=30.0, minimize_first=20, minimize_last=0
    )
    result = flexible_fit(parts, protocol).run()
    assert [femtoseconds for name, step, femtoseconds in seen if name == "hold"][:3] == [4.0, 2.0, 1.0]
    assert {femtoseconds for name, _, femtoseconds in seen if name == "free"} == {4.0}
    assert "with 2 fs to the end" in result.blow_ups[0] and "1 fs and strength / 2" in result.blow_ups[1]
    assert [each["strength"] for each in result.stages] == pytest.approx([15.0, 30.0])


def test_a_fit_killed_after_a_blow_up_goes_on_as_it_would_have(parts, tmp_path, monkeypatch):
    check, save = Dynamics.checked, FitRun._save

    def once(self, context, step, stage):
        if step == 120 and context.getIntegrator().getStepSize().value_in_unit(unit.femtosecond) > 3:
            raise Unstable("it was made to")
        return check(self, context, step, stage)

    folder, copy = tmp_path / "whole", tmp_path / "killed"
    keep = kept_at(folder, copy, lambda state: state.caution > 0)

    def saved(self, folder, state):
        save(self, folder, state)
        keep(state)

    monkeypatch.setattr(Dynamics, "checked", once)
    monkeypatch.setattr(FitRun, "_save", saved)
    whole = flexible_fit(parts).run(RunFolder(folder))
    resumed = flexible_fit(parts).run(RunFolder(copy))
    assert len(resumed.blow_ups) == len(whole.blow_ups) == 1
    assert np.array_equal(resumed.final, whole.final)


def test_what_blows_up_again_and_again_says_what_to_do_and_names_atoms(parts, tmp_path, monkeypatch):
    few = fragment(tmp_path / "few.pdb", SHIFT, 6), parts[1]
    blow_up_in(monkeypatch, atoms=(0,))
    monkeypatch.setattr(minimization, "CAREFUL_STEPS", 2)
    protocol = Protocol((Stage("hold", 40),), strength=30.0, minimize_first=5)
    with pytest.raises(SimulationError, match=r"unstable 4 times.*A MET 1 N .*lower the strength"):
        flexible_fit(few, protocol).run()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"report_interval": 0}, "report_interval"),
        ({"save_interval": 0}, "save_interval"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
        ({"platform": "Abacus"}, "Abacus"),
        ({"place": "somewhere"}, "somewhere"),
        ({"forcefield": "amber"}, "amber"),
        ({"forcefield": "missing.xml"}, "missing.xml"),
        ({"solvent": "oil"}, "oil"),
        ({"protocol": Protocol((Stage("fine", 10, resolution=3.0),))}, "3 Å"),
        ({"protocol": Protocol((Stage("npt", 10, 0.0, restraints=("position",), pressure=1.0),))}, "water"),
        (
            {"protocol": Protocol((Stage("hold", 10),), density_interval=4), "report_interval": 10},
            "multiple of density_interval",
        ),
    ],
)
def test_bad_arguments(parts, options, named):
    with pytest.raises(InputError, match=named):
        flexible_fit(parts, **options)


def test_a_fit_in_water_settles_its_box_and_keeps_it_also_where_it_blew_up(tmp_path, monkeypatch):
    check, blown, barostats = Dynamics.checked, [], {}

    def once(self, context, step, stage):
        forces = context.getSystem().getForces()
        barostats[stage.name] = any(isinstance(force, openmm.MonteCarloBarostat) for force in forces)
        if step == 30 and not blown:
            state = context.getState(positions=True)
            positions = np.array(state.getPositions(asNumpy=True)._value)
            positions[7] = np.nan
            blown.append(state.getPeriodicBoxVolume().value_in_unit(unit.nanometer**3))
            context.setPeriodicBoxVectors(*(2 * np.array(state.getPeriodicBoxVectors()._value)))
            context.setPositions(positions)
        return check(self, context, step, stage)

    monkeypatch.setattr(Dynamics, "checked", once)
    monkeypatch.setattr(stage_context, "WARM_UP_MINIMIZATION", 10)
    monkeypatch.setattr(minimization, "CAREFUL_STEPS", 10)
    model = fragment(tmp_path / "model.pdb", SHIFT, 4)
    density_map = DensityMap.simulate(model.topology, model.positions - np.array(SHIFT), RESOLUTION, 1.5)
    held = Stage("equilibrate", 40, 0.0, 300.0, restraints=("position",), pressure=1.0)
    protocol = Protocol(
        (held, Stage("draw", 10)), strength=100.0, timestep=2.0, minimize_first=30, minimize_last=5
    )
    options = {"solvent": "water", "report_interval": 10, "save_interval": 20, "place": "off"}
    fit = flexible_fit((model, density_map), protocol, **options)
    result = fit.run(RunFolder(tmp_path / "run"))
    assert len(result.blow_ups) == 1 and "rolled back to step 20" in result.blow_ups[0]
    solvent = result.prepared.topology.getNumAtoms() - prepare(model).topology.getNumAtoms()
    assert solvent > 3000 and np.isfinite(result.final).all()
    topology = mdtraj.Topology.from_openmm(result.prepared.topology)
    trajectory = mdtraj.load(str(tmp_path / "run" / "trajectory.dcd"), top=topology)
    boxes = trajectory.unitcell_volumes
    assert len(boxes) == 5 and np.isfinite(trajectory.xyz).all()
    assert boxes == pytest.approx(blown * 5, rel=0.1)
    # A barostat moves what is in the box against the map: only while the model is held, and no density acts.
    assert barostats == {"equilibrate": True, "draw": False} and boxes[3] == boxes[4]
    rows = {row.step: row for row in result.rows}
    assert rows[40].strength == 0 and rows[50].strength > 0


def test_a_state_of_another_fit_is_refused(parts, uninterrupted, tmp_path):
    other = fragment(tmp_path / "other.pdb", SHIFT, 6), parts[1]
    with pytest.raises(InputError, match="not one of this fit"):
        flexible_fit(other).run(RunFolder(uninterrupted[1]))


def test_a_model_brings_no_crystal_into_a_map_that_is_none(parts):
    model, density_map = parts
    fit = flexible_fit((replace(model, space_group="P 21 21 21"), density_map))
    assert not density_map.periodic and fit.prepared.model.space_group == ""
