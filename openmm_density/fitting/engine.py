"""What moves the atoms of a fit: its Systems, dynamics and minimisations, on one platform."""

from __future__ import annotations

import numpy as np
from openmm import app

from .dynamics import Dynamics
from .fit_systems import FitSystems
from .kept_contexts import KeptContexts
from .ligands.watch import LigandWatch
from .minimization import Minimizer
from .options import RunOptions
from .platforms import platform_named
from .protocols import Protocol
from .stability import Safeguard


class Engine:
    """What moves the atoms of a fit.

    Parameters
    ----------
    systems : FitSystems
    protocol : Protocol
    options : RunOptions

    Attributes
    ----------
    systems : FitSystems
    platform : (openmm.Platform, dict of str to str)
        With its properties: the last two arguments of a Context.
    contexts : KeptContexts
        Those in which stages run.
    safeguard : Safeguard
    dynamics : Dynamics
    minimizer : Minimizer
    ligands : LigandWatch
    trace : np.ndarray of int
        The atoms whose motion tells whether the model still changes.
    """

    def __init__(self, systems: FitSystems, protocol: Protocol, options: RunOptions) -> None:
        topology = systems.prepared.topology
        self.systems = systems
        self.platform = platform_named(options.platform, options.threads)
        self.contexts = KeptContexts(self.platform)
        self.safeguard = Safeguard(topology, systems.system)
        self.dynamics = Dynamics(protocol, systems.system, options.seed, self.safeguard)
        self.minimizer = Minimizer(systems, self.safeguard, *self.platform)
        self.ligands = LigandWatch(systems.prepared.potentials, self.safeguard.masses)
        self.trace = _trace(topology)


def _trace(topology: app.Topology) -> np.ndarray:
    """Return the atoms that trace the backbones of proteins and nucleic acids; all atoms where there are none."""
    backbone = [atom.index for atom in topology.atoms() if atom.name in ("CA", "P")]
    return np.array(backbone or range(topology.getNumAtoms()))
