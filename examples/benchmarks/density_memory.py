"""Measure memory in this process, which `density_cpu.py` starts afresh for each figure, and print it as JSON.

    python examples/benchmarks/density_memory.py scratch --atoms 100000 --size 256 --threads 2
    python examples/benchmarks/density_memory.py map --atoms 100000 --size 256

`scratch` is what one call of the fused operator needs beyond its arguments and results, at its peak. `map` is how often the
map is held beyond the caller's own once there is a `DensityFit`, a force, a Context; and the same of a `TorchForce` that does
nothing but hold it.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
from pathlib import Path

import numpy as np
import torch

VOXEL_SIZE = 0.8
RADIUS = 4.5


def resident(peak: bool = False) -> int:
    """Return the bytes that this process holds, or has held at most since `forget_peak`."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(wanted):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status does not say how much memory this process holds")


def tidy() -> None:
    """Hand back to the system what is no longer in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Start the peak anew, from memory that is really in use."""
    tidy()
    Path("/proc/self/clear_refs").write_text("5")


def scratch(n_atoms: int, size: int, threads: int) -> dict[str, int]:
    """Return the bytes of the map, and the peak of the operator's scratch with five Gaussians for each atom."""
    from openmm_density.kernels.density import CROSS_CORRELATION, density_similarity, target_moments

    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    target = torch.rand((size, size, size), generator=generator)
    moments = target_moments(target)
    place = (torch.eye(3, dtype=torch.float64) * VOXEL_SIZE, torch.zeros(3, dtype=torch.float64))

    def evaluate(count: int) -> int:
        positions = torch.rand((count, 3), generator=generator) * size * VOXEL_SIZE
        amplitudes = torch.ones((count, 5))
        exponents = torch.linspace(0.5, 2.0, 5).repeat(count, 1)
        atoms = torch.arange(count)
        forget_peak()
        before = resident()
        result = density_similarity(
            positions, atoms, amplitudes, exponents, RADIUS, target, moments, *place, True, CROSS_CORRELATION, 1.0
        )  # fmt: skip
        return resident(peak=True) - before - result[1].numel() * result[1].element_size()

    evaluate(100)  # loads the library and starts the threads
    return {"map_bytes": target.numel() * target.element_size(), "scratch_bytes": evaluate(n_atoms)}


class Bare(torch.nn.Module):
    """The least that TorchForce can run and that holds a map."""

    def __init__(self, target: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("target", target)

    def forward(self, positions: torch.Tensor, strength: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an energy that needs the map, and no forces."""
        return strength * self.target[0, 0, 0], torch.zeros_like(positions)


def times_held(n_atoms: int, size: int) -> dict[str, dict[str, float]]:
    """Return how many maps' worth of memory is held beyond the caller's map, stage by stage; of a bare TorchForce too."""
    import openmm

    from openmm_density import DensityFit, DensityMap
    from openmm_density.base.plugins import openmmtorch

    random = np.random.default_rng(0)
    edge = size * VOXEL_SIZE
    topology = openmm.app.Topology()
    residue = topology.addResidue("MOL", topology.addChain())
    for _ in range(n_atoms):
        topology.addAtom("C", openmm.app.element.carbon, residue)
    positions = random.uniform(0.1 * edge, 0.9 * edge, (n_atoms, 3))
    platform = openmm.Platform.getPlatformByName("CPU")

    def held(density_map: DensityMap, with_fit: bool) -> dict[str, float]:
        figures = {}
        tidy()
        before = resident()

        def note(stage: str) -> None:
            tidy()
            figures[stage] = (resident() - before) / density_map.data.nbytes

        if with_fit:
            # Not resampled: what is held is compared with the map as it is.
            voxel = density_map.voxel_size[0]
            options = {"positions": positions, "crop_margin": None, "voxel_size": voxel}
            fit = DensityFit(density_map, topology, 6.25 * voxel, **options)
            note("DensityFit")
            force = fit.create_force()
        else:
            module = torch.jit.script(Bare(torch.from_numpy(density_map.data)))
            force = openmmtorch().TorchForce(module)
            force.setOutputsForces(True)
            force.addGlobalParameter("k", 1.0)
            del module
        note("force")
        system = openmm.System()
        for _ in range(n_atoms):
            system.addParticle(12.0)
        system.addForce(force)
        context = openmm.Context(system, openmm.VerletIntegrator(0.001), platform)
        context.setPositions(positions / 10)
        context.getState(forces=True)
        note("Context")
        return figures

    def new_map(n: int) -> DensityMap:
        data = random.random((n, n, n), dtype=np.float32)
        return DensityMap(data, np.eye(3) * edge / n, np.zeros(3), False)

    small, large = new_map(64), new_map(size)
    held(small, True)  # loads libraries and starts threads
    return {"DensityFit": held(large, True), "bare TorchForce": held(large, False)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("scratch", "map"))
    parser.add_argument("--atoms", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=256, help="voxels along each edge of the map")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "scratch":
        figures = scratch(arguments.atoms, arguments.size, arguments.threads)
    else:
        figures = times_held(arguments.atoms, arguments.size)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
