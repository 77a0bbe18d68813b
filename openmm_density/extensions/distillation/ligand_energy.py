"""A ligand's potential as what gives it its energy in a System, and what watches whether it can be trusted there."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import gemmi
import numpy as np
import openmm
import torch

from ...base.atomic_files import read_file
from ...base.errors import InputError
from ...base.plugins import platform_names
from ...base.units import ANGSTROM_PER_NANOMETER, takes_units
from ...energies import PaiNN
from ...energies.forces import backend_problem
from ...energies.native_force.forms import kernel_problem
from ...energies.painn_network import PaiNNNetwork
from .accuracy import disagreement
from .potential_file import LigandPotential, read_potential

TIMES_WORST = 3.0
"""Times the largest disagreement of the students on held-out geometries, from which on they do not know where they are."""

LARGEST_BOUND = 10.0
"""kcal/mol/Å: students that disagree more than this know nothing, whatever their held-out geometries were."""
LARGEST_ERROR = 3.0
"""kcal/mol/Å: the mean error of forces beyond which a potential is of no use."""


@dataclass(frozen=True, eq=False)
class LigandEnergy:
    """A potential as `openmm_density.models.prepare` takes it among its ``ligand_potentials``.

    Attributes
    ----------
    known : LigandPotential
    path : Path, optional
        The file that it is from.
    sha256 : str
        Of that file; empty without one.

    Examples
    --------
    >>> from openmm_density.extensions.distillation import LigandEnergy
    >>> from openmm_density.models import prepare, read_model
    >>> potentials = {"ADP": LigandEnergy.read("ADP.safetensors")}  # doctest: +SKIP
    >>> prepare(read_model("1bg2.pdb"), ligand_forcefield="xtb", ligand_potentials=potentials)  # doctest: +SKIP
    """

    known: LigandPotential
    path: Path | None = None
    sha256: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LigandEnergy:
        """Read a file that `openmm-density distill` has written.

        Raises
        ------
        InputError
            If it is none, see `openmm_density.extensions.distillation.read_potential`, or its errors are above `LARGEST_ERROR`.
        """
        path = Path(path).absolute()
        try:
            stat = path.stat()
        except OSError:  # which is told by what reads it
            return cls._read(path)
        return _kept(cls, path, stat.st_mtime_ns, stat.st_size)

    @classmethod
    def _read(cls, path: Path) -> LigandEnergy:
        known = read_potential(path)
        if not known.accuracy.force_mae <= LARGEST_ERROR:
            raise InputError(
                f"its forces must be within {LARGEST_ERROR:g} kcal/mol/Å of the teacher's",
                source=path,
                found=f"{known.accuracy.force_mae:.1f}",
                remedy="make one with another seed",
            )
        return cls(known, path, hashlib.sha256(read_file(path)).hexdigest())

    @property
    def version(self) -> str:
        """Whose energies were learned, and how well: as in ``GFN2-xTB, forces within 0.62 kcal/mol/Å``."""
        teacher = self.known.teacher
        method = teacher.method if teacher.solvent is None else f"{teacher.method} in {teacher.solvent}"
        return f"{method}, forces within {self.known.accuracy.force_mae:.2f} kcal/mol/Å"

    @cached_property
    def elements(self) -> tuple[str, ...]:
        """Symbols of its atoms."""
        return tuple(gemmi.Element(number).name for number in self.known.ligand.elements)

    @property
    def bonds(self) -> tuple[tuple[int, int], ...]:
        """Its bonds, as pairs of atoms."""
        return tuple((i, j) for i, j, _ in self.known.ligand.bonds)

    @property
    def charges(self) -> np.ndarray:
        """The teacher's, shape (n,), in elementary charges; what they miss of the whole charge is shared among all atoms."""
        given = self.known.charges
        return given + (self.known.ligand.charge - given.sum()) / len(given)

    @property
    def positions(self) -> np.ndarray:
        """The teacher's relaxed geometry, shape (n, 3), in Å."""
        return self.known.ligand.positions * ANGSTROM_PER_NANOMETER

    @property
    def smiles(self) -> str:
        """What it is."""
        return self.known.ligand.smiles

    @property
    def bound(self) -> float:
        """The disagreement of the students, in kcal/mol/Å, beyond which a geometry is not one that they know."""
        return min(TIMES_WORST * self.known.accuracy.disagreement_worst, LARGEST_BOUND)

    def create_force(self, particles: np.ndarray, n_particles: int, parameter_name: str) -> openmm.Force:
        """Build the force of one copy: that of the student with the least error.

        Parameters
        ----------
        particles : np.ndarray of int, shape (n,)
            Its atoms, in the potential's order, among all of a System.
        n_particles : int
            How many that has.
        parameter_name : str
            Of the Context's parameter that the energy is multiplied by, 1 at first.
        """
        best = int(np.argmin(self.known.accuracy.force_mae_each))
        painn = PaiNN(self._networks[best], np.asarray(particles).tolist())
        # On CUDA a graph of its own. On CPUs it has the bits of TorchForce, and takes less of a step.
        serves = backend_problem("NativeForce") is None and kernel_problem(painn) is None
        backend = "NativeForce" if serves or "CUDA" in platform_names() else "auto"
        return painn.create_force(backend=backend, parameter_name=parameter_name)

    @takes_units(positions="nm")
    def energy(self, positions: np.ndarray) -> float:
        """Return the energy in kJ/mol above that of the teacher's relaxed geometry, by the mean of the students.

        Parameters
        ----------
        positions : np.ndarray, shape (n, 3)
            In nm.
        """
        return float(self._evaluated(positions)[0].mean())

    @takes_units(positions="nm")
    def disagreement(self, positions: np.ndarray) -> float:
        """Return how far the students' forces are apart, in kcal/mol/Å; see `bound`.

        Parameters
        ----------
        positions : np.ndarray, shape (n, 3)
            In nm.
        """
        return float(disagreement(self._evaluated(positions)[1][:, None])[0])

    @cached_property
    def _networks(self) -> list[PaiNNNetwork]:
        """The students, each with the energy of the teacher's relaxed geometry as its zero."""
        networks = self.known.networks()
        rest = torch.from_numpy(self.known.ligand.positions).to(torch.float32)
        with torch.no_grad():
            for network in networks:
                network.mean_energy -= network(rest)
        return networks

    @cached_property
    def _students(self) -> list[PaiNN]:
        return [PaiNN(network) for network in self._networks]

    def _evaluated(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each student's energy in kJ/mol, shape (K,), and forces in kJ/mol/nm, shape (K, n, 3)."""
        given = torch.from_numpy(np.ascontiguousarray(positions, dtype=np.float64))
        found = [student(given) for student in self._students]
        energies = np.array([float(energy) for energy, _ in found])
        return energies, np.stack([forces.numpy() for _, forces in found])


@lru_cache(maxsize=8)
def _kept(kind: type[LigandEnergy], path: Path, modified: int, size: int) -> LigandEnergy:
    """Return what a file holds; one that has not changed since is not read again."""
    return kind._read(path)
