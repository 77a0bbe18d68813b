"""Parts of OpenMM's CPU platform that ours take the place of, in Contexts for which they are asked."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import openmm

from openmm_density.kernels import compilation

from ...base.errors import InputError
from ...base.plugins import platform_names
from .force import load_force

OWN_KERNELS = {"pairs": "nonbonded forces", "bonded": "angles and torsions"}
"""Folders of kernels that can take the place of OpenMM's, and what they evaluate."""


@contextmanager
def own_kernels(folders: Collection[str] = tuple(OWN_KERNELS)) -> Iterator[None]:
    """Have Contexts of the CPU platform that this thread makes meanwhile evaluate forces by our kernels.

    These are `NonbondedForce` with a cut-off, and neither a box, a switching function nor offsets of parameters, and
    `HarmonicAngleForce` and `PeriodicTorsionForce` without a box, of up to six periods. For others, and on other platforms,
    nothing changes. A Context that is reinitialized later evaluates as OpenMM does.

    Parameters
    ----------
    folders : collection of str
        Which kernels: "pairs", of `NonbondedForce`, and "bonded", of the other two.

    Raises
    ------
    BuildError
        If a kernel or the force cannot be compiled or loaded.
    OSError
        If they cannot be stored.
    """
    if "CPU" not in platform_names():
        yield
        return
    names = [("pairs", "nonbonded"), ("bonded", "angles"), ("bonded", "torsions")]
    kernels = (ctypes.c_void_p * len(names))()
    for number, (folder, name) in enumerate(names):
        if folder in folders:
            function = getattr(compilation.entry_points(folder), f"openmm_density_{name}")
            kernels[number] = ctypes.cast(function, ctypes.c_void_p)
    exchange = load_force().openmm_density_exchange_kernels
    exchange(kernels)
    try:
        yield
    finally:
        exchange(kernels)


def context_with_own_constraints(
    system: openmm.System,
    integrator: openmm.Integrator,
    platform: openmm.Platform,
    properties: Mapping[str, str],
) -> openmm.Context:
    """Build a Context of the CPU platform in which our solver constrains bonds to hydrogens.

    OpenMM's takes for each Context a time that grows with the square of the number of constraints, half a minute for 80 000.
    Water stays OpenMM's. A Context that is reinitialized later is constrained as OpenMM does. What looks at constraints
    as a Context is made, as `NoseHooverIntegrator` and `AndersenThermostat` do, finds too few: use ``openmm.Context`` for it.

    Parameters
    ----------
    system : openmm.System
        It has the same constraints before and after. Meanwhile no other thread may use it.
    integrator, platform, properties
        As for ``openmm.Context``; the platform is the CPU platform.

    Raises
    ------
    InputError
        If the platform is another one.
    BuildError, OSError
        As `load_force`.
    """
    if platform.getName() != "CPU":
        raise InputError(
            "must be the CPU platform",
            argument="platform",
            found=platform.getName(),
            remedy="build the Context by openmm.Context",
        )
    library, context = load_force(), None
    released = library.openmm_density_release_constraints(int(system.this))
    try:
        context = openmm.Context(system, integrator, platform, properties)
    finally:
        library.openmm_density_restore_constraints(released, None if context is None else int(context.this))
    return context
