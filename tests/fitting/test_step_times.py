"""What each force of a step takes."""

from __future__ import annotations

import openmm

from openmm_density.fitting import FitResult, FlexibleFit
from openmm_density.fitting.fit_run import FORCES, REST, milliseconds_by_force
from openmm_density.fitting.platforms import platform_named


def test_every_force_of_a_fit_is_timed_by_its_name(fitted: tuple[FlexibleFit, FitResult]) -> None:
    fit, result = fitted
    assert result.ms_by_force is None  # nobody asked
    system = fit._systems.with_density(fit.density)
    platform = platform_named("CPU", 1)
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), *platform)
    context.setPositions(result.prepared.positions / 10)
    found = milliseconds_by_force(fit._systems.with_density(fit.density), context, platform)
    assert (
        {"nonbonded", "torsions", "density", "Ramachandran", REST} <= found.keys() <= {*FORCES.values(), REST}
    )
    assert min(found.values()) >= 0
    told = [spent for kind, spent in found.items() if kind != REST]
    assert told == sorted(told, reverse=True) and list(found)[-1] == REST
