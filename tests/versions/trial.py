"""What a user does first with an installation: in an environment of its own, outside the clone, it prints JSON.

``python trial.py FOLDER`` works in a folder that holds ``model.pdb``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
import warnings

# Before torch, which our package has to bear.
import openmm
from openmm import app, unit

RESOLUTION = "5"
DISTANCE = 1e-3
"""In nm, for central differences of the energy."""


def main() -> None:
    """Print one JSON object with what was found; keys whose trial failed hold an error's last line instead."""
    os.chdir(sys.argv[1])
    found = {}
    trials = {"import": imported, "map": simulated, "force": force, "fit": fitted, "doctor": doctor}
    for name, trial in trials.items():
        started = time.monotonic()
        try:
            found[name] = trial()
        except Exception as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            found[name] = {"problem": said[-1]}
            traceback.print_exc()
        found[name]["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(found))


def imported() -> dict:
    import torch

    import openmm_density

    return {
        "openmm-density": openmm_density.__version__,
        "torch": torch.__version__,
        "openmm": openmm.version.full_version,
    }


def simulated() -> dict:
    command("simulate", "model.pdb", "--resolution", RESOLUTION, "--voxel-size", "1.5", "--output", "map.mrc")
    return {}


def force() -> dict:
    """Return the backend that is taken, S, and how well forces and energies on the CPU platform agree."""
    from openmm_density import DensityFit, DensityMap

    pdb = app.PDBFile("model.pdb")
    positions = pdb.getPositions(asNumpy=True) + [0.05, 0.02, 0] * unit.nanometer
    system = openmm.System()
    for _ in pdb.topology.atoms():
        system.addParticle(12.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = DensityFit(DensityMap.from_file("map.mrc"), pdb.topology, resolution=5.0, positions=positions)
        added = fit.create_force()
    system.addForce(added)
    platform = openmm.Platform.getPlatformByName("CPU")
    context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
    context.setPositions(positions)
    forces = context.getState(forces=True).getForces(asNumpy=True)
    forces = forces.value_in_unit(unit.kilojoule_per_mole / unit.nanometer)
    norm = (forces**2).sum() ** 0.5
    energies = []
    for sign in (1, -1):
        context.setPositions(positions + sign * DISTANCE * forces / norm * unit.nanometer)
        energies.append(
            context.getState(energy=True).getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        )
    error = abs((energies[1] - energies[0]) / (2 * DISTANCE) / norm - 1)
    if not error < 1e-2:
        raise ValueError(f"forces and energies disagree: {energies} and {norm}")
    return {
        "backend": type(added).__name__,
        "similarity": fit.similarity(positions),
        "error": float(error),
        "warnings": [str(one.message) for one in caught],
    }


def fitted() -> dict:
    """Return what a short fit by the command line ends in."""
    options = (
        *("--protocol", "quick", "--steps", "100", "--report-interval", "50", "--strength", "100"),
        *("--search", "off", "--threads", "1", "--seed", "1", "--output", "run", "--overwrite"),
    )
    command("fit", "model.pdb", "map.mrc", "--resolution", RESOLUTION, *options)
    with open("run/summary.json") as file:
        text = file.read()
    if "NaN" in text or "Infinity" in text:
        raise ValueError("the summary holds numbers that are not finite")
    summary = json.loads(text)
    return {"cc": summary["cc_final"], "backend": summary["force_backend"]}


def doctor() -> dict:
    done = command("doctor", "--json", may_fail=True)
    diagnosis = json.loads(done)
    working = sorted({f"{one['backend']} ({one['platform']})" for one in diagnosis["probes"] if one["works"]})
    kernels = sorted(one["folder"] for one in diagnosis["kernels"] if not one["loaded"])
    return {
        "ok": diagnosis["ok"],
        "working": working,
        "not loaded": kernels,
        "remedies": diagnosis["remedies"],
    }


def command(*words: str, may_fail: bool = False) -> str:
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "openmm-density"), *words],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode and not may_fail:
        raise RuntimeError(
            f"openmm-density {words[0]} ends with status {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
