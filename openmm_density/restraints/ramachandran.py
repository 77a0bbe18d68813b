"""`RamachandranRestraint`: φ and ψ lie in the favoured regions of the Ramachandran plot."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import openmm
import torch
from openmm import app, unit
from scipy import ndimage

from openmm_density.kernels.torsion_maps import pack_torsions, spline_nodes

from ..base.errors import InputError, as_argument
from ..base.units import takes_units
from ..energies import forces
from ..energies.torsion_maps import TorsionMapEnergy
from ..models.chemistry.ramachandran_tables import (
    ALLOWED,
    CELL,
    FAVOURED,
    BackboneTorsions,
    backbone_torsions,
    ramachandran_tables,
)
from ..models.chemistry.torsions import torsion_angles
from .restraint import Restraint, Violation

RAMACHANDRAN_FORCE_CONSTANT = 200.0
"""kJ/mol/rad²: a residue at the edge of a favoured region costs 0.8 kJ/mol, one 10° outside 7 kJ/mol, one 40° outside 62
kJ/mol."""
MARGIN = 5.0
"""Degrees within a favoured region up to which a residue is pulled: one that is let go at the edge comes to rest just
outside."""
TABLES_MISSING = (
    "the backbone is not held in favoured regions, because the tables of pyrama were not found or not readable; to have them: "
    "pip install pyrama"
)
NO_VALIDATION = "Residues are held in favoured regions of the Ramachandran plot, so that few outliers are no sign of a good fit."

# Degrees between the values of the spline: half a width of the narrowest favoured region.
_STEP = 5.0
# The plots lie side by side in one table, each with so many more values at each edge, copied from the opposite edge.
_BORDER = 4


class RamachandranRestraint(Restraint):
    """Pull φ and ψ of every residue to the nearest favoured region of its Ramachandran plot.

    E = ½ k d², with d the distance in the plane of φ and ψ to what lies 5° within a favoured region, and k the Context
    parameter: no force farther within the regions, which hold 98% of well-ordered residues, so that the density chooses among
    them. The plots are those of glycine, proline, residues before proline, and all others (Lovell et al., Proteins 50, 437
    (2003)); for D-amino acids they are turned by 180°. A residue counts as violated where it is an outlier: beyond the allowed
    region too.

    A model that was fitted with it cannot be validated by its Ramachandran plot: few outliers are then no sign of a good fit.

    Parameters
    ----------
    topology : openmm.app.Topology or mdtraj.Topology
        Residues are joined by its bonds.
    positions : Quantity or array_like, shape (N, 3)
        Å where plain; they tell which residues are D-amino acids.
    force_constant, parameter_name, force_group, periodic
        As for `openmm_density.restraints.Restraint`, with its errors; k is in kJ/mol/rad².
    """

    name = "ramachandran"
    default_force_constant = RAMACHANDRAN_FORCE_CONSTANT
    force_constant_unit = unit.kilojoule_per_mole / unit.radian**2
    default_parameter_name = "ramachandran_strength"

    def __init__(
        self, topology: app.Topology, positions: Any, force_constant: Any = None, **common: Any
    ) -> None:
        super().__init__(topology, positions, force_constant, **common)
        self.torsions = backbone_torsions(self.topology, self.start)
        if not self.n_terms:
            return
        if ramachandran_tables() is None:
            self.notes.append(TABLES_MISSING)
            self.torsions = BackboneTorsions(*(each[:0] for each in self.torsions))
        else:
            self.notes.append(NO_VALIDATION)

    @property
    def n_terms(self) -> int:
        """Number of residues that are held."""
        return len(self.torsions.residues)

    def create_force(
        self, backend: str | None = None, *, parameter_derivative: bool | None = None
    ) -> openmm.Force:
        """Build the force that ``System.addForce`` takes; each call builds another.

        Parameters
        ----------
        backend : {"auto", "TorchForce", "NativeForce", "PythonTorchForce", "PythonForce", "CudaGraphForce"}, optional
            By default a ``CustomCompoundBondForce``. OpenMM's CPU platform evaluates that on one thread; ``NativeForce``, with an
            operator of our own (`openmm_density.kernels.torsion_maps`), takes a sixth of its time there. Both have the same
            Context parameter and, to 1e-4, the same energy.
        parameter_derivative : bool, optional
            As in `openmm_density.PlanarityRestraint.create_force`; with a backend only.

        Raises
        ------
        InputError
            With a backend, if the restraint is ``periodic``.
        """
        if backend is None:
            return self._custom_force()
        if self.periodic:
            raise InputError(
                "is for residues whose atoms are in one molecule, which no box boundary splits",
                argument="backend",
                remedy=f"leave it or {as_argument('periodic')} out",
            )
        return forces.create_force(
            self.create_module(),
            self.parameter_name,
            self.force_constant,
            periodic=False,
            name=type(self).__name__,
            backend=backend,
            force_group=self.force_group,
            parameter_derivative=parameter_derivative,
        )

    def create_module(self) -> torch.nn.Module:
        """Build the TorchScript-compatible module behind the force of a backend.

        ``module(positions, strength) -> (energy, forces)``; in nm and kJ/mol.
        """
        plots = list(ALLOWED)
        return TorsionMapEnergy(
            pack_torsions(
                self.torsions.atoms,
                [plots.index(plot) for plot in self.torsions.plots],
                self.torsions.handedness,
                len(self._atoms),
            ),
            _nodes() if self.n_terms else spline_nodes(np.zeros((1, 3, 3))),
            len(self._atoms),
            type(self).__name__,
        )

    def _custom_force(self) -> openmm.CustomCompoundBondForce:
        if not self.n_terms:
            return self._finish(openmm.CustomCompoundBondForce(5, f"0*{self.parameter_name}"))
        force = openmm.CustomCompoundBondForce(
            5,
            f"0.5*{self.parameter_name}*distance2(start + handedness*dihedral(p1, p2, p3, p4), "
            "handedness*dihedral(p2, p3, p4, p5))",
        )
        for name in ("start", "handedness"):
            force.addPerBondParameter(name)
        values, starts = _side_by_side()
        width, high = (np.radians((size - 1) * _STEP) for size in values.shape)
        low = -np.pi - np.radians(_BORDER * _STEP)
        force.addTabulatedFunction(
            "distance2",
            # φ runs fastest.
            openmm.Continuous2DFunction(*values.shape, values.T.ravel(), 0.0, width, low, low + high),
        )
        for atoms, plot, sign in zip(
            self.torsions.atoms.tolist(), self.torsions.plots, self.torsions.handedness
        ):
            force.addBond(atoms, [starts[plot], float(sign)])
        return self._finish(force)

    @takes_units("positions")
    def angles(self, positions: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return φ and ψ in radians, of D-amino acids with the opposite sign.

        Parameters
        ----------
        positions : Quantity or array_like, shape (N, 3)
            Å where plain.
        """
        positions = self._checked(positions)
        atoms, handedness = self.torsions.atoms, self.torsions.handedness
        return handedness * torsion_angles(positions, atoms[:, :4]), handedness * torsion_angles(
            positions, atoms[:, 1:]
        )

    def violations(self, positions: Any) -> list[Violation]:
        """List the outliers, the one farthest from a favoured region first; see `Restraint.violations`."""
        phi, psi = self.angles(positions)
        tables = ramachandran_tables() if self.n_terms else {}
        found = []
        for k, plot in enumerate(self.torsions.plots):
            cell = tuple(
                int((np.degrees(angle) + 180.0) // CELL) % len(tables[plot]) for angle in (phi[k], psi[k])
            )
            if tables[plot][cell] < ALLOWED[plot]:
                found.append((float(_distances(plot)[cell]), k))
        return [
            Violation(
                self.name,
                self._residues(self.torsions.atoms[k, 1:4]),
                "φ, ψ to what is favoured",
                distance,
                0.0,
                "°",
                0.0,
                tuple(int(atom) for atom in self.torsions.atoms[k]),
            )
            for distance, k in sorted(found, key=lambda each: (-each[0], each[1]))
        ]


@lru_cache(maxsize=len(ALLOWED))
def _distances(plot: str) -> np.ndarray:
    """Return how far outside the favoured regions the centre of each cell is, in degrees; less than 0 within."""
    favoured = ramachandran_tables()[plot] >= FAVOURED
    n = len(favoured)
    outside, within = (
        ndimage.distance_transform_edt(np.tile(cells, (3, 3)), sampling=CELL)[n : 2 * n, n : 2 * n]
        for cells in (~favoured, favoured)
    )
    # Between the centres of cells on both sides of the edge.
    return outside - np.maximum(within - CELL, 0.0)


@lru_cache(maxsize=len(ALLOWED))
def _squares(plot: str) -> np.ndarray:
    """Return d² in rad² every `_STEP`, by φ and ψ, each from -180°."""
    beyond = np.radians(np.maximum(_distances(plot) + MARGIN, 0.0))
    degrees = np.arange(round(360.0 / _STEP)) * _STEP - 180.0
    cells = (np.stack(np.meshgrid(degrees, degrees, indexing="ij")) + 180.0) / CELL - 0.5
    return ndimage.map_coordinates(beyond**2, cells, order=1, mode="grid-wrap")


@lru_cache(maxsize=1)
def _nodes() -> torch.Tensor:
    """Return ½ d² of all plots as the nodes of splines: searches make many such restraints."""
    return spline_nodes([0.5 * _squares(plot) for plot in ALLOWED])


@lru_cache(maxsize=1)
def _side_by_side() -> tuple[np.ndarray, dict[str, float]]:
    """Return d² in rad² of all plots in one table, by φ and ψ, and what to add to φ to find each plot in it."""
    tables = [np.pad(_squares(plot), (_BORDER, _BORDER + 1), mode="wrap") for plot in ALLOWED]
    starts = {
        plot: np.radians((number * len(tables[0]) + _BORDER) * _STEP + 180.0)
        for number, plot in enumerate(ALLOWED)
    }
    return np.concatenate(tables), starts
