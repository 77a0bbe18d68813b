"""What a stage asks for, at work in a Context."""

import numpy as np
import pytest
from openmm import unit

from openmm_density.fitting.protocols import Stage
from openmm_density.fitting.run_state import RunState
from openmm_density.fitting.stage_context import StageContext


@pytest.fixture
def state(fitted):
    start = fitted[0].prepared.positions / 10
    return RunState(start, 0 * start, start, strength=30.0)


def test_scale_and_temperature_are_those_of_the_middle_of_a_block_of_steps(fitted, state):
    fit, _ = fitted
    stage = Stage("draw", 80, (0.2, 0.8), (300.0, 100.0), resolution=8.0)
    running = StageContext(fit._run.engine, state, stage)
    assert running.strength == 0.0
    full = 30.0 * fit.density.n_fitted_atoms
    for step, part in ((0, 0.25), (39, 0.25), (40, 0.75)):
        state.stage_step = step
        running.apply(state)
        assert running.strength == pytest.approx(full * 0.2 * 4**part)
        kelvin = running.context.getIntegrator().getTemperature().value_in_unit(unit.kelvin)
        assert kelvin == pytest.approx(300.0 - 200.0 * part)
    state.caution = 2
    running.apply(state)
    assert running.strength == pytest.approx(full * 0.2 * 4**0.75 / 2)


def test_what_follows_the_similarity_is_updated_at_the_ends_of_blocks(fitted, state):
    engine = fitted[0]._run.engine
    running = StageContext(engine, state, Stage("hold", 80, adaptive=True, until_converged=True))
    running.set_scale(state, 1.0)
    for step in (20, 40, 60, 80):
        state.stage_step = step
        assert not running.follow(state)
    assert len(state.plateau.similarities) == 2 and state.plateau.steps == 80
    # To the last bit, as a strength that follows it depends on it.
    similarity = running.density.similarity(running.positions())
    assert state.plateau.similarities == [similarity] * 2 and state.adaptive.average == similarity
    still = StageContext(engine, state, Stage("hold", 80))
    assert not still.follow(state) and len(state.plateau.similarities) == 2


def test_planarity_is_restrained_fully_for_a_minimisation(fitted, state):
    fit, _ = fitted
    name = fit.planarity.parameter_name
    for stage, full in ((Stage("hold", 4), 1.0), (Stage("free", 4, restraints=("ss",)), 0.0)):
        running = StageContext(fit._run.engine, state, stage)
        running.context.setParameter(name, 0.5)
        running.restrain_planarity_fully()
        assert running.context.getParameter(name) == full


def test_a_context_is_put_back_to_a_state_and_a_state_brought_to_it(fitted, state):
    running = StageContext(fitted[0]._run.engine, state, Stage("free", 4, strength=0.0))
    before = state.positions
    running.context.setPositions(before + 0.1)
    running.update(state)
    assert np.array_equal(state.positions, before + 0.1) and state.box is None
    state.positions = before
    running.restore(state)
    assert running.positions() == pytest.approx(10 * before)
