"""The Systems of a fit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import openmm
import pytest

from openmm_density.fitting import fit_systems, widths
from openmm_density.fitting.fit_systems import (
    DENSITY_GROUP,
    FORCE_FIELD_GROUP,
    RESTRAINT_GROUP,
    STABLE_FRACTION,
    FitSystems,
)
from openmm_density.fitting.protocols import Stage
from openmm_density.kernels import compilation

from ..contexts import context_of
from ..fragments import RESOLUTION


def test_the_blurred_map_is_that_of_a_model_at_the_coarser_resolution(fitted):
    fit, _ = fitted
    coarse = fit._systems.at(8.0)[0]
    assert coarse.sigma == pytest.approx(0.225 * 8.0)
    there = fit.prepared.positions + (fit.reference.positions - fit.prepared.model.positions)[0]
    assert coarse.similarity(there) > coarse.similarity(fit.prepared.positions)
    # A model where it belongs explains the blurred map as well as it does the map.
    assert coarse.similarity(there) > 0.97


def test_a_system_is_built_once_for_each_resolution_pressure_and_blur(fitted):
    fit, _ = fitted
    systems = fit._systems
    assert systems.at() is systems.at(fit.density.resolution) and systems.at()[1] is fit.system
    assert systems.at(blur=1.2)[0].resolution == pytest.approx(1.2 * RESOLUTION)
    pressed = systems.at(pressure=1.0)
    assert pressed[0] is fit.density and pressed[1] is not fit.system
    barostats = [force for force in pressed[1].getForces() if isinstance(force, openmm.MonteCarloBarostat)]
    assert len(barostats) == 1 and not any("Barostat" in force.getName() for force in fit.system.getForces())


def test_its_forces_are_in_three_groups(fitted):
    fit, _ = fitted
    groups = {force.getName(): force.getForceGroup() for force in fit.system.getForces()}
    assert groups["DensityFit"] == DENSITY_GROUP and groups["PlanarityRestraint"] == RESTRAINT_GROUP
    assert groups["NonbondedForce"] == groups["HarmonicBondForce"] == FORCE_FIELD_GROUP
    bare = [force.getName() for force in fit._systems.without_density.getForces()]
    assert "PlanarityRestraint" in bare and "DensityFit" not in bare
    assert fit._systems.without_density.getNumConstraints() == 0 < fit.system.getNumConstraints()


def test_without_a_compiler_backbones_are_held_by_openmm(fitted, monkeypatch):
    fit, _ = fitted
    (restraint,) = (each for each in fit.restraints if each.name == "ramachandran")
    asked = []
    monkeypatch.setattr(compilation, "load", asked.append)
    (force,) = FitSystems._forces_of(SimpleNamespace(_platform="CPU"), restraint)
    assert isinstance(force, openmm.CustomCompoundBondForce) and asked == ["torsion_maps"]


def test_flat_groups_are_held_as_stiffly_as_the_time_step_bears(fitted, monkeypatch):
    fit, _ = fitted
    context = context_of(fit.system)
    name = fit.planarity.parameter_name
    longest = fit.planarity.stable_timestep(fit.system)
    held, free = Stage("hold", 4), Stage("free", 4, restraints=("ss",))
    fit._systems.set_stiff_restraints(context, held)
    assert context.getParameter(name) == 1.0
    fit._systems.set_stiff_restraints(context, held, 2 * longest)
    assert context.getParameter(name) == pytest.approx((STABLE_FRACTION / 2) ** 2)
    fit._systems.set_stiff_restraints(context, held, 0.5 * longest)
    assert context.getParameter(name) == 1.0
    fit._systems.set_stiff_restraints(context, free, 0.5 * longest)
    assert context.getParameter(name) == 0.0
    monkeypatch.setattr(fit.planarity, "force_constant", 3.0)
    fit._systems.set_stiff_restraints(context, held)
    assert context.getParameter(name) == 3.0
    fit._systems.release_restraints(context, free)
    strengths = {each.name: context.getParameter(each.parameter_name) for each in fit.restraints}
    assert strengths.pop("ss") > 0 and strengths and not any(strengths.values())


def test_gaussians_are_wider_only_where_similarities_can_be_compared(fitted):
    fit, result = fitted
    systems, positions = fit._systems, result.final
    widest = max(widths.BLURS, key=lambda blur: systems.at(blur=blur)[0].similarity(positions))
    assert systems.of_stage(Stage("draw", 4), positions) is systems.at(blur=widest)
    assert systems.of_stage(Stage("coarse", 4, resolution=8.0), positions) is systems.at(8.0)
    assert systems.of_stage(Stage("free", 4, strength=0.0), positions) is systems.at()


def test_the_last_map_is_sharpened_only_where_it_shows_wide_atoms(fitted):
    fit, result = fitted
    final, draw = Stage("finish", 4, final=True), Stage("draw", 4)

    def density(stage, blur):
        return fit._systems.of_stage(stage, result.final, [{"blur": blur}])[0]

    assert density(final, 1.2) is density(final, 1.0) is fit.density
    sharp = density(final, 1.35)
    ends = (final, 1.35), (final, 1.2), (replace(final, resolution=2 * RESOLUTION), 1.35), (draw, 1.35)
    told = [fit._systems.sharpening(stage, [{"blur": blur}]) for stage, blur in ends]
    assert told == [1.35, 1.0, 1.0, 1.0]
    assert sharp.resolution == RESOLUTION and density(draw, 1.35) is density(draw, 1.0)
    expected = fit.density.with_map(fit.fit_map.sharpened(1.35), RESOLUTION)
    assert np.array_equal(sharp.target.data, expected.target.data)
    assert not np.array_equal(sharp.target.data, fit.density.target.data)


@pytest.mark.parametrize("platform", ["CPU", "Reference", "OpenCL"])
def test_elsewhere_they_are_our_own_where_they_can_be_compiled(monkeypatch, platform):
    monkeypatch.setattr("openmm_density.energies.forces.backend_problem", {"NativeForce": None}.get)
    options = FitSystems._force_options(SimpleNamespace(_platform=platform))
    assert options == {"parameter_derivative": False, "backend": "NativeForce"}
    monkeypatch.setattr("openmm_density.energies.forces.backend_problem", {"NativeForce": "no compiler"}.get)
    options = FitSystems._force_options(SimpleNamespace(_platform=platform))
    assert options == {"parameter_derivative": False}


@pytest.mark.parametrize(
    ("backend", "graphs"), [("TorchForce", True), ("PythonForce", True), ("PythonTorchForce", False)]
)
def test_on_cuda_a_slower_way_is_announced(monkeypatch, backend, graphs):
    monkeypatch.setattr(
        "openmm_density.energies.forces.backend_problem", {"CudaGraphForce": "no compiler"}.get
    )
    monkeypatch.setattr(fit_systems, "best_backend", lambda: backend)
    with pytest.warns(UserWarning, match=rf"using {backend}, which is slower: .* \(no compiler\)"):
        options = FitSystems._force_options(SimpleNamespace(_platform="CUDA"))
    assert options == {"parameter_derivative": False, "cuda_graphs": graphs}
