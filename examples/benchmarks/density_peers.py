"""Engines of the peers: TorchRef, gemmi and GROMACS with the inputs of ours, compared with ours before they are timed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gemmi
import gromacs_density
import mdtraj
import numpy as np
import torch
from density_models import (
    DENSITY,
    EXAMPLES,
    GRADIENT,
    RADIUS,
    RESOLUTION,
    SIGMA,
    RandomAtoms,
    forces_in_two_passes,
)
from interleaved import Engine, compare

from openmm_density import DensityFit, DensityMap

# Largest differences over the largest value: what the hard cut-off of others and the smooth one of this kernel make of the same
# atoms; their gradients differ where a Gaussian still has a slope.
CUTOFFS = {"density": 3e-4, "gradient": 1e-3}
# GROMACS sums over a box around each atom, and at 4 sigma a Gaussian still has 3e-4 of its height.
GROMACS_CUTOFF = 0.03


class TorchRef:
    """TorchRef in a process of its own."""

    def __init__(self, interpreter: str, label: str | None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (open as long as the process)
        self._process = subprocess.Popen(
            [interpreter, str(Path(__file__).with_name("torchref_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        described = self._ask("describe")
        self.version = described["torchref"]
        self.name = f"TorchRef {self.version} ({label or described['engine']})"

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError((self._errors.read().strip().splitlines() or ["it ended without a word"])[-1])
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def load(self, inputs: Path, folder: Path, threads: int) -> tuple[np.ndarray, np.ndarray]:
        """Load a case; return density [z, y, x] and gradient; this is the warm-up."""
        outputs = folder / "torchref.npz"
        self._ask("load", inputs=str(inputs), outputs=str(outputs), threads=threads)
        with np.load(outputs) as arrays:
            return arrays["density"].transpose(2, 1, 0), arrays["gradient"]

    def engine(self, operation: str, threads: int) -> Engine:
        """Return the engine that times it."""
        return Engine(
            self.name,
            operation,
            threads,
            lambda: self._ask("run", gradient=operation == GRADIENT)["seconds"],
        )

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()


def start_torchref(interpreters: str | None, notes: list[str]) -> list[TorchRef]:
    """Start a process for each version of TorchRef; note those that do not start."""
    if interpreters is None:
        interpreters = sys.executable if importlib.util.find_spec("torchref") else ""
        if not interpreters:
            notes.append("TorchRef is not installed here: name interpreters with --torchref")
    peers = []
    for entry in filter(None, interpreters.split(",")):
        label, _, interpreter = entry.rpartition("=")
        try:
            peers.append(TorchRef(interpreter, label or None))
        except (OSError, RuntimeError, ValueError) as error:
            notes.append(f"TorchRef does not run in {interpreter}: {error}")
    return peers


def write_inputs(atoms: RandomAtoms, path: Path) -> None:
    """Write TorchRef's arguments, with grids whose slowest axis is x."""
    table = [gemmi.Element(element).c4322.get_coefs() for element in atoms.elements]
    coefficients = np.array(table, dtype=np.float32)
    n = len(atoms.positions)
    np.savez(
        path,
        positions=atoms.positions.numpy(),
        b_factors=atoms.b_factors.numpy().astype(np.float32),
        occupancies=np.ones(n, np.float32),
        a=np.ascontiguousarray(coefficients[:, :5]),
        b=np.ascontiguousarray(coefficients[:, 5:]),
        fractional=np.linalg.inv(atoms.orthogonal).astype(np.float32),
        orthogonal=atoms.orthogonal.astype(np.float32),
        voxel_size=np.linalg.norm(atoms.orthogonal, axis=0).astype(np.float32) / np.float32(atoms.shape[0]),
        radius=np.float32(RADIUS),
        weights=np.ascontiguousarray(atoms.weights.numpy().transpose(2, 1, 0)),
        shape=np.array(atoms.shape[::-1]),
    )


def torchref_engines(
    peers: list[TorchRef],
    atoms: RandomAtoms,
    results: tuple[np.ndarray, np.ndarray],
    folder: Path,
    threads: int,
) -> list[Engine]:
    """Return the engine of each version of TorchRef, after comparing its density and gradient with ours."""
    inputs = folder / "inputs.npz"
    if peers:
        write_inputs(atoms, inputs)
    engines = []
    for peer in peers:
        engine = peer.engine(GRADIENT, threads)
        for what, found, expected in zip(CUTOFFS, peer.load(inputs, folder, threads), results):
            engine.deviations[what] = compare(f"{what} of {peer.name}", found, expected, CUTOFFS[what])
        engines.append(engine)
    return engines


def gemmi_calculator(atoms: RandomAtoms) -> tuple[gemmi.DensityCalculatorE, gemmi.Model]:
    """Return gemmi's calculator on the same grid, and the atoms as its model."""
    chain, residue = gemmi.Chain("A"), gemmi.Residue()
    for element, position, b_factor in zip(
        atoms.elements, atoms.positions.tolist(), atoms.b_factors.tolist()
    ):
        atom = gemmi.Atom()
        atom.name, atom.element = str(element), gemmi.Element(element)
        atom.pos, atom.b_iso, atom.occ = gemmi.Position(*position), b_factor, 1.0
        residue.add_atom(atom)
    model = gemmi.Model(1)
    chain.add_residue(residue)
    model.add_chain(chain)
    calculator = gemmi.DensityCalculatorE()
    calculator.grid.unit_cell = atoms.cell
    calculator.grid.spacegroup = gemmi.SpaceGroup("P 1")
    calculator.grid.set_size(*atoms.shape[::-1])
    return calculator, model


def gemmi_engine(atoms: RandomAtoms, density: np.ndarray) -> Engine:
    """Return gemmi's engine, which has no gradient and takes one thread, after comparing its density with ours."""
    calculator, model = gemmi_calculator(atoms)

    def put() -> float:
        start = time.perf_counter()
        calculator.put_model_density_on_grid(model)
        return time.perf_counter() - start

    put()
    engine = Engine(f"gemmi {gemmi.__version__} DensityCalculatorE", DENSITY, 1, put)
    found = np.asarray(calculator.grid.array).transpose(2, 1, 0)
    engine.deviations["density"] = compare(f"density of {engine.name}", found, density, CUTOFFS["density"])
    return engine


def gromacs_engines(
    version: str,
    start: np.ndarray,
    density_map: DensityMap,
    agreement: dict[str, float],
    folder: Path,
    most_threads: int,
) -> dict[tuple[str, int], Engine]:
    """Return GROMACS's steps with and without density, with all threads and with one, after comparing its forces with ours."""
    model = mdtraj.load(str(EXAMPLES / "data" / "adk_open.pdb"))
    model.xyz = (start / 10)[None].astype(np.float32)
    model.save_pdb(str(folder / "open.pdb"))
    gromacs = gromacs_density.GromacsDensity(folder / "open.pdb", density_map, folder, SIGMA, RADIUS / SIGMA)
    strong = 1e8  # the density's forces are told from a difference of forces in single precision
    gromacs.prepare("check", "Protein-H", strong, forces=True)
    gromacs.prepare("check_without", None, forces=True)
    fit = DensityFit(
        density_map, gromacs.topology, RESOLUTION, weights="unity", about_mean=True, cutoff=RADIUS, crop_margin=None
    )  # fmt: skip
    found = (gromacs.forces("check") - gromacs.forces("check_without")) / strong
    ours_ = forces_in_two_passes(fit, gromacs.positions, torch.from_numpy(density_map.data))
    agreement["GROMACS's forces on heavy atoms"] = compare("force of GROMACS", found, ours_, GROMACS_CUTOFF)
    weak = 10.0 * fit.n_fitted_atoms
    counts = {"Protein-H": fit.n_fitted_atoms, "Protein": gromacs.topology.n_atoms}
    engines = {}
    for name, group in (("without", None), ("heavy", "Protein-H"), ("all", "Protein")):
        gromacs.prepare(name, group, weak)
        for threads in sorted({1, most_threads}, reverse=True):

            def run(name: str = name, threads: int = threads) -> float:
                return gromacs.run(name, threads) / 1000

            what = "without density" if group is None else f"with density of {counts[group]} atoms"
            label = f"GROMACS {version} step {what}"
            engines[name, threads] = Engine(label, "step", threads, run, is_short=False)
    return engines
