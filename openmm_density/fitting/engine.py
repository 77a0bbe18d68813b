"""What moves the atoms of a fit: its Systems, dynamics and minimisations, on one platform."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np
import openmm
from openmm import app

from ..base.garbage import return_memory
from ..base.stopwatch import Stopwatch
from ..models.preparation import Prepared
from .dynamics import Dynamics, copy_course
from .fit_map import FitMap
from .fit_systems import LARGE, FitSystems
from .ligand_watch import LigandWatch
from .minimization import Minimizer
from .options import RunOptions
from .platforms import make_context, platform_named, repeats_itself
from .protocols import Protocol
from .stability import Safeguard


class Engine:
    """What moves a fit's atoms: the platform and its properties, Contexts, and `trace`, the atoms whose motion is followed."""

    def __init__(self, systems: FitSystems, protocol: Protocol, options: RunOptions) -> None:
        topology = systems.prepared.topology
        self.systems = systems
        self.platform = platform_named(options.platform, options.threads)
        self.contexts = KeptContexts(self.platform)
        self.safeguard = Safeguard(topology, systems.plain)
        self.dynamics = Dynamics(protocol, systems.plain, options.seed, self.safeguard)
        self.minimizer = Minimizer(systems, self.safeguard, *self.platform)
        self.ligands = LigandWatch(systems.prepared.potentials, self.safeguard.masses)
        self.trace = _trace(topology)

    def forget(self) -> None:
        """Free what a run takes, hundreds of megabytes of a large model, of which what follows has no use."""
        self.contexts.forget()
        self.systems.forget()
        return_memory()


def _trace(topology: app.Topology) -> np.ndarray:
    """Return the atoms that trace the backbones of proteins and nucleic acids; all atoms where there are none."""
    backbone = [atom.index for atom in topology.atoms() if atom.name in ("CA", "P")]
    return np.array(backbone or range(topology.getNumAtoms()))


class FitParts(NamedTuple):
    """The parts of one fit; `solute`: its model without the water around it."""

    engine: Engine
    protocol: Protocol
    options: RunOptions
    fit_map: FitMap
    solute: Prepared
    stopwatch: Stopwatch


class KeptContexts:
    """Make Contexts, and take those that are not in use any more.

    On Reference, and on CPU with one thread, each is made anew: what OpenMM keeps in it, as noise and the history of neighbour
    lists, would make a resumed fit differ from the uninterrupted one. Elsewhere these are not alike to the last bit anyway. Of a
    System whose turn is over none is kept on a CPU, nor of a large one anywhere, as each takes memory for all its terms.
    `platform` with its properties.
    """

    def __init__(self, platform: tuple[openmm.Platform, dict[str, str]]) -> None:
        self._platform = platform
        self._keeps = not repeats_itself(*platform)
        # By the System, which lives as long as a Context of it.
        self._free: dict[int, list[_Kept]] = {}

    def lend(self, user: object, system: openmm.System, integrator: openmm.Integrator) -> openmm.Context:
        """Return a Context with the parameters of a new one, until its user is deleted."""
        if not self._keeps:
            return make_context(system, integrator, self._platform)
        if self._platform[0].getName() == "CPU" or system.getNumParticles() > LARGE:
            self._free = {key: free for key, free in self._free.items() if key == id(system)}
        free = self._free.setdefault(id(system), [])
        kept = free.pop() if free else _Kept(make_context(system, integrator, self._platform), system)
        kept.renew(integrator)
        weakref.finalize(user, free.append, kept)
        return kept.context

    def forget(self) -> None:
        """Use none of them again, as after something blew up in one."""
        self._free = {}


class _Kept:
    """A Context, and what its parameters were."""

    def __init__(self, context: openmm.Context, system: openmm.System) -> None:
        self.context, self._system = context, system
        self._defaults = dict(context.getParameters())

    def renew(self, integrator: openmm.Integrator) -> None:
        """Set parameters, time step and temperature as in a new Context."""
        for name, value in self._defaults.items():
            self.context.setParameter(name, value)
        copy_course(integrator, self.context.getIntegrator())
