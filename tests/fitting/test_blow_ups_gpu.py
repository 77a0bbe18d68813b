"""Damaged models and blow-ups on the CUDA platform, which does not notice that atoms are lost, with `CudaGraphForce`."""

import warnings

import numpy as np
import openmm
import pytest
from openmm import unit

from openmm_density.base.errors import DeveloperWarning
from openmm_density.energies.forces import backend_problem

from .damaged_models import DAMAGES, assert_sane, damaged, fit_of, native
from .test_stability import explode_once, nan_after

pytestmark = pytest.mark.skipif(
    backend_problem("CudaGraphForce") is not None,
    reason=f"CudaGraphForce: {backend_problem('CudaGraphForce')}",
)


def in_nanometers(context):
    found = context.getState(positions=True).getPositions(asNumpy=True)
    return np.array(found.value_in_unit(unit.nanometer))


def forces_of(context, groups=-1):
    found = context.getState(forces=True, groups=groups).getForces(asNumpy=True)
    return found.value_in_unit(unit.kilojoule_per_mole / unit.nanometer)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_comes_through_a_fit(damage, tmp_path):
    fit = fit_of(damaged(tmp_path, damage), tmp_path, "CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeveloperWarning)
        result = fit.run()
    assert result.force_backend == "CudaGraphForce"
    assert_sane(fit, result)


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_relaxation_is_that_of_other_platforms(damage, tmp_path):
    model = damaged(tmp_path, damage)
    relaxed = []
    for platform in ("CUDA", "Reference"):
        fit = fit_of(model, tmp_path, platform)
        relaxed.append(fit._run.engine.minimizer._relaxation.relaxed(fit.prepared.positions / 10))
    alpha = [a.index for a in fit.prepared.topology.atoms() if a.name in ("N", "CA", "C")]
    # Rounding tells, in flat valleys, where a minimiser stops.
    assert np.sqrt(((relaxed[0] - relaxed[1])[alpha] ** 2).sum(axis=1).mean()) < 0.05


def test_atoms_that_explode_are_rolled_back(monkeypatch, tmp_path):
    fit = fit_of(native(tmp_path), tmp_path, "CUDA")
    sizes = explode_once(monkeypatch)
    result = fit.run()
    assert len(sizes) > 2 and sizes[1] < sizes[0]
    assert_sane(fit, result)


def test_forces_that_overflow_are_minimised(tmp_path):
    """Two atoms at 0.02 Å, and no relaxation before: the minimiser alone."""
    fit = fit_of(native(tmp_path), tmp_path, "CUDA")
    context = openmm.Context(fit.system, openmm.VerletIntegrator(0.001), *fit._run.engine.platform)
    positions = fit.prepared.positions / 10
    carbons = [a.index for a in fit.prepared.topology.atoms() if a.name == "CB"]
    positions[carbons[1]] = positions[carbons[5]] + [0.002, 0, 0]
    context.setPositions(positions)
    fit._run.engine.minimizer.minimize(context, 300)
    found = in_nanometers(context)
    assert np.isfinite(found).all() and np.isfinite(forces_of(context)).all()
    assert np.linalg.norm(found[carbons[1]] - found[carbons[5]]) > 0.2


def test_a_minimisation_that_blows_up_ends_in_double_precision(monkeypatch, tmp_path):
    fit = fit_of(native(tmp_path), tmp_path, "CUDA")
    context = openmm.Context(fit.system, openmm.VerletIntegrator(0.001), *fit._run.engine.platform)
    context.setPositions(fit.prepared.positions / 10)
    precisions = []

    def precision(context):
        precisions.append(context.getPlatform().getPropertyValue(context, "Precision"))
        return True

    nan_after(monkeypatch, 2, of=precision)
    fit._run.engine.minimizer.minimize(context, 50)
    assert precisions == ["mixed", "mixed", "double"]
    assert np.isfinite(in_nanometers(context)).all()
