"""Time the density-guided simulation of GROMACS: the difference between runs with and without it on the same system.

GROMACS is called as a user calls it: `gmx pdb2gmx`, `gmx grompp`, `gmx mdrun`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import mdtraj
import numpy as np

from openmm_density import DensityMap

STEPS = 30
TIMESTEP = 0.0001  # ps: the structure comes from the force field's templates, unminimised

RUN = """
integrator = md
dt = {timestep}
nsteps = {steps}
cutoff-scheme = Verlet
nstlist = 20
pbc = xyz
coulombtype = cutoff
rcoulomb = 1.0
rvdw = 1.0
constraints = none
comm-mode = none
nstlog = 0
nstenergy = 0
nstcalcenergy = 100
nstxout = 0
nstfout = {forces_every}
"""

DENSITY = """
density-guided-simulation-active = yes
density-guided-simulation-group = {group}
density-guided-simulation-similarity-measure = cross-correlation
density-guided-simulation-atom-spreading-weight = unity
density-guided-simulation-force-constant = {strength}
density-guided-simulation-gaussian-transform-spreading-width = {sigma}
density-guided-simulation-gaussian-transform-spreading-range-in-multiples-of-width = {range}
density-guided-simulation-reference-density-filename = {map}
density-guided-simulation-nst = 1
density-guided-simulation-normalize-densities = no
density-guided-simulation-adaptive-force-scaling = no
"""


def find() -> str | None:
    """Return the version of GROMACS, or None where there is no `gmx`."""
    if shutil.which("gmx") is None:
        return None
    said = subprocess.run(["gmx", "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"GROMACS version:\s*([\d.]+)", said)
    return found.group(1) if found else None


class GromacsDensity:
    """One model in vacuum, and a map that it is fitted to.

    Parameters
    ----------
    model : path
        A PDB file with its coordinates inside the map.
    target : DensityMap
        With its origin at zero.
    folder : path
        Where files go.
    sigma, reach : float
        Of an atom's Gaussian in Å, and its cut-off in multiples of it.

    Attributes
    ----------
    topology : mdtraj.Topology
        With the hydrogens that GROMACS has built.
    positions : np.ndarray, shape (N, 3)
        In Å.
    """

    def __init__(self, model: Path, target: DensityMap, folder: Path, sigma: float, reach: float) -> None:
        self._folder = folder
        self._sigma, self._reach = sigma / 10, reach
        target.write(folder / "target.mrc")
        box = [f"{extent / 10:.4f}" for extent in target.size * target.voxel_size]
        self._gmx("pdb2gmx", "-f", model, "-o", "model.gro", "-p", "model.top", "-i", "posre.itp",
                  "-ff", "amber99sb-ildn", "-water", "none", "-ignh")  # fmt: skip
        self._gmx("editconf", "-f", "model.gro", "-o", "boxed.gro", "-noc", "-box", *box)
        loaded = mdtraj.load(str(folder / "boxed.gro"))
        self.topology, self.positions = loaded.topology, 10.0 * loaded.xyz[0].astype(np.float64)

    def prepare(self, name: str, group: str | None, strength: float = 0.0, forces: bool = False) -> None:
        """Write the run input of so many steps with the density of a group, or of one step that writes its forces."""
        text = RUN.format(timestep=TIMESTEP, steps=0 if forces else STEPS, forces_every=int(forces))
        if group is not None:
            text += DENSITY.format(
                group=group,
                strength=strength,
                sigma=self._sigma,
                range=self._reach,
                map=self._folder / "target.mrc",
            )
        (self._folder / f"{name}.mdp").write_text(text)
        self._gmx("grompp", "-f", f"{name}.mdp", "-c", "boxed.gro", "-p", "model.top", "-o", f"{name}.tpr",
                  "-po", f"{name}.out.mdp", "-maxwarn", "5")  # fmt: skip

    def run(self, name: str, threads: int = 1) -> float:
        """Run what was prepared, with so many threads in one rank; return the milliseconds of a step by GROMACS's own clock."""
        self._gmx("mdrun", "-s", f"{name}.tpr", "-deffnm", name, "-ntmpi", "1", "-ntomp", threads,
                  "-nb", "cpu", "-pin", "off")  # fmt: skip
        log = (self._folder / f"{name}.log").read_text()
        found = re.search(r"^\s+Time:\s+\S+\s+(\S+)", log, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"{self._folder / name}.log has no line with the time")
        return 1000 * float(found.group(1)) / (STEPS + 1)

    def forces(self, name: str) -> np.ndarray:
        """Run what was prepared with forces, and read them, in kJ/mol/nm."""
        self.run(name)
        self._gmx("traj", "-f", f"{name}.trr", "-s", f"{name}.tpr", "-of", f"{name}.xvg", "-xvg", "none",
                  "-fp", stdin="System\n")  # fmt: skip
        return np.loadtxt(self._folder / f"{name}.xvg", ndmin=2)[0, 1:].reshape(-1, 3)

    def _gmx(self, *arguments: object, stdin: str = "") -> None:
        command = ["gmx", "-nobackup", "-quiet", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self._folder, input=stdin, capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
