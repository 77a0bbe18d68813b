"""Learn what density side chains have around their Cα, and write the table that the search for registers reads.

    python examples/benchmarks/side_chain_densities.py [--output FILE] [--test MODEL MAP RESOLUTION]

The models of examples/data and tests/data that are named below are simulated as maps at each resolution; linear discriminant
analysis (Fisher 1936) then tells residue types apart by the density around each residue. No experimental map is used. With
`--test` the table is tried on a model and its map: for windows along the chain, how often their own residues fit best of all that
are up to four places on or back; and how often the way back is among the first proposals where a stretch was shifted. The models
of EMD-5925 and EMD-6374 are left out of what is learnt, for such tests.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from openmm_density import DensityMap
from openmm_density.extensions.rebuilding.evidence_search import proposed_shifts
from openmm_density.extensions.rebuilding.register_search import FLANK, RegisterSearch, Stretch
from openmm_density.extensions.rebuilding.side_chain_evidence import (
    AMINO_ACIDS,
    POINTS,
    SideChainEvidence,
    backbone_atoms,
    density_around,
)
from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.backbone import atoms_by_name

PROJECT = Path(__file__).resolve().parents[2]
MODELS = (
    "examples/data/adk_closed.pdb",
    "examples/data/adk_open.pdb",
    "tests/data/emd21457_ntd/6vyb_Ndom.pdb",
    "tests/data/emd3488_5ni1/5me2.pdb",
    "tests/data/emd6187_kinesin/1bg2_K_fitted.pdb",
    "tests/data/qr_6i5a/6i5a_box_complete.pdb",
    "tests/data/xray_1g8a_P21/1G8A_refined.pdb",
    "tests/data/xraymap_3pqr_R32/3pqr.pdb",
)
RESOLUTIONS = (2.5, 3.0, 3.6, 4.2)
NOISE, VOXEL, SEED = 0.2, 1.0, 3
# A model that is out of register lies some way off its density: Å, and degrees, RMS, and how often each residue is displaced.
DISPLACED, TURNED, COPIES = 1.0, 25.0, 4
# Principal components of the density, how much of the covariance is taken as diagonal, and residues of the overall mean that
# each type's is mixed with.
COMPONENTS, DIAGONAL, PRIOR = 80, 0.3, 15.0
WINDOWS, SHIFTS = (6, 10, 15, 20), np.arange(-4, 5)
LENGTHS, SHIFTED_BY, FIRST = (8, 12, 18), (1, -1, 2, -2, 3), 16


def examples(resolution: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return densities (n, P) around residues, and the indices (n,) of their types in `AMINO_ACIDS`."""
    densities, types = [], []
    for path in MODELS:
        model = read_model(PROJECT / path)
        simulated = DensityMap.simulate(
            model.topology, model.positions, resolution, voxel_size=VOXEL, noise=NOISE, seed=SEED
        )
        names = [residue.name for residue in model.topology.residues()]
        backbone = model.positions[backbone_atoms(atoms_by_name(model.topology))]
        for chain in RegisterSearch(model.topology).chains:
            known = np.array([names[residue] in AMINO_ACIDS for residue in chain.tolist()])
            for _ in range(COPIES):
                moves = rng.normal(0.0, DISPLACED / np.sqrt(3), (len(chain), 3))
                turns = Rotation.from_rotvec(
                    rng.normal(0.0, np.radians(TURNED) / np.sqrt(3), (len(chain), 3))
                )
                around = density_around(simulated, backbone[chain], moves, turns.as_matrix())
                densities.append(around[known])
                types.append([AMINO_ACIDS.index(names[r]) for r in chain[known].tolist()])
    return np.concatenate(densities), np.concatenate(types)


def discriminants(densities: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (20, P) of the density around a residue, and constants (20,).

    Their sum is the log-likelihood of each type, but for a term that all have in common.
    """
    overall = densities.mean(axis=0)
    components = np.linalg.svd(densities - overall, full_matrices=False)[2][:COMPONENTS]
    reduced = (densities - overall) @ components.T
    counts = np.bincount(types, minlength=len(AMINO_ACIDS))[:, None]
    sums = np.zeros((len(AMINO_ACIDS), COMPONENTS))
    np.add.at(sums, types, reduced)
    means = sums / (counts + PRIOR)
    covariance = np.cov((reduced - means[types]).T)
    covariance = (1 - DIAGONAL) * covariance + DIAGONAL * np.diag(np.diag(covariance))
    slopes = np.linalg.solve(covariance, means.T).T
    weights = slopes @ components
    return weights, -0.5 * (slopes * means).sum(axis=1) - weights @ overall


def windows_in_register(
    model: Model, density_map: DensityMap, resolution: float
) -> dict[int, tuple[int, int]]:
    """Return for each length of a window how many fit best in their own place, and of how many."""
    evidence = SideChainEvidence(model.topology, density_map, resolution)
    found = {}
    for length in WINDOWS:
        right = tried = 0
        for chain in RegisterSearch(model.topology).chains:
            odds = evidence.log_odds(model.positions, chain)
            for first in range(-SHIFTS[0], len(chain) - length - SHIFTS[-1] + 1):
                places = np.arange(first, first + length)
                sums = [odds[places, places + by].sum() for by in SHIFTS]
                right += int(SHIFTS[int(np.argmax(sums))] == 0)
                tried += 1
        found[length] = (right, tried)
    return found


def ways_back_proposed(
    model: Model, density_map: DensityMap, resolution: float
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return for lengths of stretches and shifts of them how often the way back is proposed among the first, and of how many."""
    evidence, registers = (
        SideChainEvidence(model.topology, density_map, resolution),
        RegisterSearch(model.topology),
    )
    chain = max(registers.chains, key=len)
    found = {}
    for length in LENGTHS:
        for by in SHIFTED_BY:
            right = tried = 0
            for first in range(FLANK, len(chain) - length - FLANK, 5):
                last = first + length - 1
                wrong = registers.shifted(model.positions, [Stretch(chain, first, last)], by)
                proposed = proposed_shifts(chain, evidence.log_odds(wrong, chain))[:FIRST]
                right += any(
                    each.usual == -by
                    and min(each.stretch.last, last) - max(each.first, first) + 1 >= 0.6 * length
                    for each in proposed
                )
                tried += 1
            found[length, by] = (right, tried)
    return found


def main() -> None:
    """Learn the table and write it, or test it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--test", nargs=3, metavar=("MODEL", "MAP", "RESOLUTION"))
    arguments = parser.parse_args()
    if arguments.output:
        rng = np.random.default_rng(SEED)
        learnt = [discriminants(*examples(resolution, rng)) for resolution in RESOLUTIONS]
        np.savez_compressed(
            arguments.output,
            resolutions=np.array(RESOLUTIONS),
            weights=np.array([weights for weights, _ in learnt], dtype=np.float32),
            constants=np.array([constants for _, constants in learnt], dtype=np.float32),
        )
        print(f"{len(POINTS)} points, {len(RESOLUTIONS)} resolutions: {arguments.output}")
    if arguments.test:
        path, map_path, resolution = arguments.test
        case = read_model(path), DensityMap.from_file(map_path), float(resolution)
        for length, (right, tried) in windows_in_register(*case).items():
            print(f"windows of {length:2d} residues: {right} of {tried} fit best in their own place")
        for (length, by), (right, tried) in ways_back_proposed(*case).items():
            print(f"{length:2d} residues shifted by {by:+d}: the way back proposed for {right} of {tried}")


if __name__ == "__main__":
    main()
