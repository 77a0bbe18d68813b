"""The end of a fit: the final strength is found on the annealed model, which is then relaxed at it."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from openmm_density.base.errors import InputError, SimulationError
from openmm_density.fitting import final_strength, final_trials
from openmm_density.fitting.checkpoints import RunFolder
from openmm_density.fitting.dynamics import Dynamics
from openmm_density.fitting.final_strength import LEAST, MOST_TIMES
from openmm_density.fitting.final_trials import FinalTrials
from openmm_density.fitting.fit_run import FitRun
from openmm_density.fitting.fit_systems import FitSystems
from openmm_density.fitting.flexible_fit import FlexibleFit
from openmm_density.fitting.protocols import Protocol, Stage, find_protocol
from openmm_density.fitting.stability import Unstable
from openmm_density.validation.geometry import geometry_report

from ..fragments import RESOLUTION, fragment, map_of

RESIDUES = 10

STRONG = 3000.0


@pytest.fixture(scope="module", autouse=True)
def _strained():
    """Bear less of what a strong pull spoils, and hold nothing more stiffly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(final_strength, "MOST_ANGLE_RMSZ", 0.45)
        patch.setattr(final_strength, "MOST_STIFFER", 1.0)
        yield


@pytest.fixture(scope="module")
def parts(tmp_path_factory, _strained):
    folder = tmp_path_factory.mktemp("fragment")
    return fragment(folder / "model.pdb", (0.5, -0.4, 0.3), RESIDUES), map_of(RESIDUES, 0.7, 0, folder)


def protocol(**changes):
    quick = replace(find_protocol("quick", RESOLUTION), minimize_first=20, minimize_last=20)
    return replace(quick, **changes).with_steps(120)


def flexible_fit(parts, **options):
    model, density_map = parts
    options = {"protocol": protocol(strength=STRONG, final_strength="auto"), **options}
    options = {"threads": 1, "report_interval": 20, "save_interval": 40, "platform": "CPU", **options}
    return FlexibleFit(model, density_map, RESOLUTION, **options)


@pytest.fixture(scope="module")
def whole(parts):
    said = []
    fit = flexible_fit(parts)
    return fit, fit.run(progress=lambda step, total, doing, row: said.append(doing)), said


def assert_same(one, other):
    assert np.array_equal(one.final, other.final) and one.rows == other.rows
    assert one.final_strength == other.final_strength and one.final_search == other.final_search


def test_a_fit_ends_at_the_strength_that_it_finds(whole):
    fit, result, said = whole
    search = result.final_search
    assert result.strength == STRONG
    assert search["most"] == search["trials"][0]["strength"] == MOST_TIMES * STRONG
    assert LEAST <= result.final_strength <= (1 + 1e-9) * search["chosen"] < STRONG
    assert search["limited_by"] and "final strength: 6000 kJ/mol" in said
    *before, last = fit.protocol.stages
    assert [stage["name"] for stage in result.stages] == [stage.name for stage in fit.protocol.stages]
    assert (last.name, last.final, last.restraints) == ("finish", True, before[-1].restraints)
    assert fit.protocol.steps == result.steps == 120
    assert result.stages[-2]["strength"] == pytest.approx(STRONG)
    assert result.stages[-1]["strength"] == pytest.approx(search["chosen"])
    finish = [row.strength for row in result.rows if row.stage == "finish"]
    assert finish and finish == pytest.approx([search["chosen"]] * len(finish))
    assert result.rows[-1].strength == pytest.approx(result.final_strength)
    assert fit.stopwatch.seconds_by_part["final_strength"] > 0


def test_all_trials_come_to_rest_in_one_system(parts, monkeypatch):
    made, at_rest, find = [], FitSystems.at_rest, FinalTrials.find
    monkeypatch.setattr(FitSystems, "at_rest", lambda *given, **how: made.append(1) or at_rest(*given, **how))
    tried = []

    def finding(*given):
        before = len(made)
        found = find(*given)
        tried.append((len(found.trials), len(made) - before))
        return found

    monkeypatch.setattr(FinalTrials, "find", finding)
    flexible_fit(parts).run()
    ((trials, systems),) = tried
    assert trials > 1 and systems == 1 and len(made) == 2  # the other is that of the last minimisation


def test_bounds_found_beside_the_dynamics_are_the_same(parts, whole, monkeypatch):
    first = FitRun._first_state

    def beginning(run, *given):
        state = first(run, *given)
        run._trials.find_bounds_beside(state)
        monkeypatch.setattr(FinalTrials, "bounds", None)  # are not found again
        return state

    monkeypatch.setattr(FitRun, "_first_state", beginning)
    assert_same(flexible_fit(parts).run(), whole[1])


def test_a_weaker_end_has_the_better_geometry(parts, whole):
    fit, result, _ = whole
    strong = flexible_fit(parts, protocol=protocol(strength=STRONG)).run()
    assert strong.final_search is None and strong.final_strength == pytest.approx(STRONG)
    topology = fit.solute.topology
    angles = [geometry_report(topology, each.as_simulated().final).angle_rmsz for each in (result, strong)]
    assert angles[0] < angles[1]


def test_resumed_it_is_the_same_bit_for_bit(parts, whole, tmp_path):
    class Killed(Exception):
        pass

    def kill(step, total, doing, row):
        if doing.startswith("final strength") and len(heard) < 2:
            heard.append(doing)
            if len(heard) == 2:
                raise Killed

    heard = []
    with pytest.raises(Killed):
        flexible_fit(parts).run(RunFolder(tmp_path), kill)
    assert_same(flexible_fit(parts).run(RunFolder(tmp_path)), whole[1])


def test_a_signal_while_it_is_found_ends_the_fit_and_it_goes_on_to_the_same_end(parts, whole, tmp_path):
    def interrupt(step, total, doing, row):
        if doing.startswith("final strength") and "6000" not in doing:
            signal.raise_signal(signal.SIGTERM)

    result = flexible_fit(parts).run(RunFolder(tmp_path), interrupt)
    assert result.interrupted and result.final_search is None and np.isfinite(result.final).all()
    assert result.stages[-1]["name"] == "finish" and result.stages[-1]["steps"] == 0
    assert_same(flexible_fit(parts).run(RunFolder(tmp_path)), whole[1])


def test_what_blows_up_in_a_trial_is_too_strong(parts, monkeypatch):
    relax = FinalTrials._relax

    def blowing_up(self, running, state, strength, stop):
        if strength > 100:
            raise SimulationError("it blew up")
        relax(self, running, state, strength, stop)

    monkeypatch.setattr(FinalTrials, "_relax", blowing_up)
    result = flexible_fit(parts).run()
    assert result.final_search["chosen"] <= 100 and result.final_search["trials"][0]["angle_rmsz"] is None


def test_a_number_is_the_end_and_nothing_is_tried(parts, monkeypatch):
    monkeypatch.setattr(final_trials, "find_final_strength", None)
    result = flexible_fit(parts, protocol=protocol(strength=50.0, final_strength=12.5)).run()
    assert (result.strength, result.final_strength, result.final_search) == (50.0, 12.5, None)


def test_half_maps_limit_it(parts):
    limited = protocol(strength=STRONG, final_strength="auto", final_strength_limit=7.0)
    search = flexible_fit(parts, protocol=limited).run().final_search
    assert search["most"] == 7.0 and search["chosen"] <= 7.0


def test_what_a_model_is_pulled_with_at_last_is_the_most():
    assert find_protocol("gentle", 4.0).scale_before_end == 0.5
    assert find_protocol("standard", 4.0).finishing().scale_before_end == 1.0
    assert Protocol((Stage("draw", 10, strength=0.0),)).scale_before_end == 1.0


@pytest.mark.parametrize("name", ["standard", "quick", "cascade", "gentle"])
def test_every_protocol_ends_with_it_in_as_many_steps_unless_it_says_not_to(name):
    begun = find_protocol(name, 4.0).from_start(0.7)
    ended = begun.finishing()
    *_, before, last = ended.stages
    assert ended.steps == begun.steps and 0.09 < last.steps / ended.steps < 0.11
    assert last.final and last.temperature == begun.stages[-1].temperature == before.temperature
    assert "rotamers" in last.restraints and ended.finishing() == ended
    assert last.rotamers == before.rotamers == (name != "gentle")
    assert ended.final_strength == "auto" == ended.final_strength_sought
    without = replace(begun, finish=False)
    assert without.finishing() is without


def test_nothing_is_added_where_a_number_is_given_or_nothing_pulls():
    quick = find_protocol("quick", 4.0)
    for unchanged in (
        replace(quick, strength=30.0),
        replace(quick, strength=0.0, final_strength="auto"),
        Protocol((Stage("rest", 10, strength=0.0),)),
    ):
        assert unchanged.finishing() is unchanged
    assert replace(quick, strength=30.0).final_strength_sought is None
    assert replace(quick, strength=30.0, final_strength="auto").finishing().stages[-1].final


def test_final_stages_are_the_last():
    with pytest.raises(InputError, match="last stages"):
        Protocol((Stage("end", 10, final=True), Stage("on", 10)))
    with pytest.raises(InputError, match="with density"):
        Protocol((Stage("end", 10, strength=0.0, final=True),))
    for name, wrong in (("final_strength", -1), ("final_strength", "some"), ("final_strength_limit", "auto")):
        with pytest.raises(InputError, match="0 or more"):
            replace(find_protocol("quick", 4.0), **{name: wrong})


def test_what_blows_up_at_the_end_goes_on_in_smaller_steps_and_as_strongly(parts, monkeypatch):
    checked, blown = Dynamics.checked, []

    def blowing_up(self, context, step, stage):
        if stage.final and not blown:
            blown.append(step)
            raise Unstable("an atom flew away")
        return checked(self, context, step, stage)

    monkeypatch.setattr(Dynamics, "checked", blowing_up)
    result = flexible_fit(parts, protocol=protocol(strength=50.0, final_strength=12.5)).run()
    (sentence,) = result.blow_ups
    assert blown and sentence.endswith("went on with 1.5 fs to the end of the stage.")
    assert result.final_strength == pytest.approx(12.5)
    assert result.stages[-1]["strength"] == pytest.approx(12.5)


def test_what_blows_up_after_the_search_does_not_repeat_it(parts, whole, monkeypatch):
    checked, find, found, blown = Dynamics.checked, FinalTrials.find, [], []

    def blowing_up(self, context, step, stage):
        if found and not blown:
            blown.append(step)
            raise Unstable("an atom flew away")
        return checked(self, context, step, stage)

    monkeypatch.setattr(Dynamics, "checked", blowing_up)
    monkeypatch.setattr(FinalTrials, "find", lambda *given: found.append(find(*given)) or found[-1])
    result = flexible_fit(parts).run()
    assert len(blown) == len(found) == len(result.blow_ups) == 1
    assert result.final_search == found[0].as_dict() == whole[1].final_search
    assert result.stages[-1]["strength"] == pytest.approx(found[0].chosen)
