"""The rows of the log."""

import pytest

from openmm_density import DensityFit
from openmm_density.fitting.protocols import Stage
from openmm_density.fitting.run_state import RunState
from openmm_density.fitting.stage_context import StageContext


@pytest.fixture
def running(fitted):
    """Return what makes the Context of a stage at the start of the fit, and a row of the log there."""
    fit, _ = fitted
    start = fit.prepared.positions / 10
    state = RunState(start, 0 * start, start, strength=30.0)

    def run(stage, scale):
        running = StageContext(fit._run.engine, state, stage)
        running.set_scale(state, scale)
        return running, fit._run.stages.row(running, state, "hold").result()

    return run


def test_the_similarity_is_read_from_the_energy_where_it_can_be(fitted, running, monkeypatch):
    fit, _ = fitted
    expected = fit.density.similarity(fit.prepared.positions)
    asked = []
    evaluate = DensityFit.similarity
    # A stage without density has the Gaussians of the map's resolution.
    context, row = running(Stage("free", 4, strength=0.0), 0.0)
    assert row.density_energy == 0.0 and row.similarity == expected
    monkeypatch.setattr(
        DensityFit, "similarity", lambda self, there: asked.append(self) or evaluate(self, there)
    )
    for scale in (1e-3, 1.0, -1.0):
        state = RunState(*[fit.prepared.positions / 10] * 3, strength=30.0)
        context.set_scale(state, scale)
        assert fit._run.stages.row(context, state, "hold").known.similarity == pytest.approx(
            expected, abs=1e-12
        )
    assert asked == []


def test_of_a_coarser_map_the_similarity_is_still_that_with_the_map_itself(fitted, running):
    fit, _ = fitted
    context, row = running(Stage("coarse", 4, resolution=8.0), 1.0)
    expected = fit.density.similarity(fit.prepared.positions)
    assert row.similarity == expected
    own = context.density.measure.similarity_from_energy(row.density_energy, context.strength)
    assert own == pytest.approx(context.density.similarity(fit.prepared.positions), abs=1e-12)
    assert abs(own - expected) > 1e-3


def test_the_reference_is_measured_in_the_same_map(fitted):
    fit, result = fitted
    assert result.cc_reference == fit.fit_map.correlation(fit.reference.topology).cc_mask(
        fit.reference.positions
    )
