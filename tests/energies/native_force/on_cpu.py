"""Contexts of the CPU platform with our kernels, or OpenMM's, and what is expected of them."""

from contextlib import nullcontext

import numpy as np
import openmm
import pytest

from openmm_density.energies.native_force import own_kernels

from ...contexts import context_of, energy_of, forces_of


def on_cpu(system, positions, threads=2, own=True):
    platform = openmm.Platform.getPlatformByName("CPU")
    with own_kernels() if own else nullcontext():
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform, {"Threads": str(threads)})
    context.setPositions(positions / 10)
    return context


def found(context):
    return energy_of(context), forces_of(context)


def assert_alike(one, other):
    """Within float32, of which the largest forces, of close atoms, lose the most."""
    (energy, forces), (expected, expected_forces) = one, other
    assert energy == pytest.approx(expected, rel=1e-5, abs=1e-5 * (100 + len(forces)))
    np.testing.assert_allclose(forces, expected_forces, rtol=0, atol=3e-5 * max(1, np.abs(forces).max()))


def assert_as_reference(context, system, positions):
    assert_alike(ours := found(context), found(context_of(system, positions)))
    return ours[1]
