"""B factors and occupancies that are known, found again; real maps with and without refined ones; and what half maps say.

For example ``python examples/benchmarks/b_factors.py known occupancies half-maps``, and with the whole real maps of
OPENMM_DENSITY_DATA (or ../shared/data) also ``real widths``. Each line is one refinement, with its seconds of processor time.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from noisy_maps import b_factors_at, noisy_maps, relative_b_factors
from openmm import app, unit

from openmm_density import DensityFit, DensityMap
from openmm_density.energies.atomic_parameters import BFactorRefinement, OccupancyRefinement
from openmm_density.energies.form_factors import blurring_b_factor
from openmm_density.maps.model_density import ModelDensity
from openmm_density.models import Model, read_model
from openmm_density.validation.fsc import model_fsc
from openmm_density.validation.q_score import q_scores

EXAMPLES = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("OPENMM_DENSITY_DATA", EXAMPLES.parents[1] / "shared" / "data"))
REAL = {
    "TMV, 2.3 Å": ("qr_6i5a/6i5a_box_complete.pdb", "qr_6i5a/6i5a_box.ccp4", 2.3),
    "EMD-6374, 2.9 Å": ("emd6374_frag/6374_native.pdb", "emd6374_frag/emd6374.mrc.gz", 2.9),
    "EMD-3488, 3.2 Å": ("emd3488_5ni1/5ni1_updated.cif", "emd3488_5ni1/emd_3488.mrc", 3.2),
    "EMD-5925, 3.64 Å": ("emd5925_frag/5925_native.pdb", "emd5925_frag/emd5925.mrc.gz", 3.64),
    "kinesin, 5 Å": ("emd6187_kinesin/chain_K_box_complete.pdb", "emd6187_kinesin/chain_K_box.ccp4", 5.0),
}
NOISE = (0.1, 0.3)
"""Standard deviations of the noise in that of the density inside the molecule."""


def heavy_by_residue(model: Model, values: np.ndarray) -> np.ndarray:
    """Return the mean of each residue's non-hydrogen atoms."""
    means = []
    for residue in model.topology.residues():
        atoms = [atom.index for atom in residue.atoms() if atom.element.symbol != "H"]
        means.append(values[atoms].mean() if atoms else np.nan)
    return np.array(means)


def pearson(model: Model, found: np.ndarray, known: np.ndarray) -> float:
    """Return the correlation of B factors by residue."""
    found, known = heavy_by_residue(model, found), heavy_by_residue(model, known)
    both = np.isfinite(found) & np.isfinite(known)
    return float(np.corrcoef(found[both], known[both])[0, 1])


def adenylate_kinase() -> tuple[Model, np.ndarray]:
    """Return the closed form, and B factors from 10 to 150 Å² that vary along the chain and to the surface."""
    model = read_model(EXAMPLES / "data" / "adk_closed.pdb")
    relative = relative_b_factors(model.topology, model.positions)
    return model, 10 + 140 * (relative - relative.min()) / np.ptp(relative)


def known() -> None:
    """Print how well known B factors are found."""
    model, truth = adenylate_kinase()
    print("known B factors, 10 to 150 Å²: Pearson by residue (wanted .95, .9, .8), RMS error by residue")
    for resolution in (2.5, 3.5, 5.0):
        for noise in NOISE:
            density_map = DensityMap.simulate(
                model.topology,
                model.positions,
                resolution,
                min(1.0, resolution / 3),
                b_factors=truth,
                noise=noise,
            )
            refined = BFactorRefinement(model, density_map, resolution).refine()
            away = heavy_by_residue(model, refined.b_factors) - heavy_by_residue(model, truth)
            pull = np.sqrt(np.mean(((refined.b_factors - truth) / refined.deviations) ** 2))
            print(
                f"{resolution:4.1f} Å, noise {noise:.1f}: {refined.level:8s} r {pearson(model, refined.b_factors, truth):.3f}, "
                f"RMS {np.sqrt(np.mean(away**2)):5.1f} Å², CC {refined.cc_uniform:.4f} -> {refined.cc:.4f}, errors over their "
                f"deviations {pull:.1f}, {refined.seconds:.2f} s"
            )


def occupancies() -> None:
    """Print how well known occupancies of the haems of haemoglobin are found."""
    model = read_model(DATA / "emd3488_5ni1" / "5ni1_updated.cif")
    b_factors = np.clip(model.b_factors, 10, 150)
    full = DensityMap.simulate(model.topology, model.positions, 3.0, 1.0, b_factors=b_factors, noise=0.3)
    haems = app.Modeller(model.topology, model.positions * unit.angstrom)
    haems.delete([residue for residue in model.topology.residues() if residue.name != "HEM"])
    atoms = [atom.index for atom in model.topology.atoms() if atom.residue.name == "HEM"]
    density_of_haems = ModelDensity(haems.topology, 3.0, b_factors=b_factors[atoms])
    start, density = density_of_haems.on_grid(model.positions[atoms], full.matrix, full.origin)
    on_map, of_box = full.overlap(start, np.array(density.shape[::-1]))
    print("known occupancies of four haems at 3 Å, noise 0.3 (wanted within .1)")
    for truth in (0.3, 0.6, 1.0):
        data = full.data.copy()
        data[on_map] -= np.float32(1 - truth) * density[of_box]
        found = OccupancyRefinement(model, replace(full, data=data), 3.0, "ligands").refine()
        values = ", ".join(f"{value:.2f}" for value in found.values.values())
        print(f"{truth:.1f}: {values}; CC {found.cc_given:.4f} -> {found.cc:.4f}, {found.seconds:.1f} s")


def mean_fsc(
    density_map: DensityMap, model: Model, resolution: float, b_factors: np.ndarray | float
) -> float:
    """Return the mean over reciprocal space, up to the resolution, of the Fourier shell correlation with a model."""
    b_factors = np.broadcast_to(b_factors, (model.topology.getNumAtoms(),))
    curve = model_fsc(density_map, model.topology, model.positions, resolution, b_factors=b_factors)
    frequency, correlation = (np.array(values) for values in (curve.frequency, curve.correlation))
    kept = frequency <= 1 / resolution
    return float(np.average(correlation[kept], weights=frequency[kept] ** 2))


def half_maps() -> None:
    """Print what B factors refined in one half map gain in the other."""
    model, _ = adenylate_kinase()
    relative = relative_b_factors(model.topology, model.positions)
    print("half maps with solvent and noise: CC and mean FSC with the other half, uniform -> refined")
    for resolution in (2.5, 3.5, 5.0):
        maps = noisy_maps(model.topology, model.positions, resolution, relative)
        truth = b_factors_at(resolution, relative)
        for level in ("atom", "residue", "group"):
            refined = BFactorRefinement(
                model, maps.full, resolution, level=level, half_maps=maps.halves[:2]
            ).refine()
            check = refined.half_maps
            of_half = BFactorRefinement(model, maps.halves[0], resolution, level=level).refine()
            fsc = [
                mean_fsc(maps.halves[1], model, resolution, b) for b in (of_half.uniform, of_half.b_factors)
            ]
            print(
                f"{resolution:4.1f} Å {level:8s} CC {check.uniform.free:.4f} -> {check.levels[0].free:.4f} (own half "
                f"{check.uniform.work:.4f} -> {check.levels[0].work:.4f}), FSC {fsc[0]:.4f} -> {fsc[1]:.4f}, r with truth "
                f"{pearson(model, refined.b_factors, truth):.3f}, {refined.seconds:.1f} s"
            )


def real() -> None:
    """Print real maps with their deposited models."""
    print(
        "real maps, deposited models: CC of given, uniform and refined B factors, mean FSC uniform -> refined"
    )
    for name, (model_path, map_path, resolution) in REAL.items():
        model, density_map = read_model(DATA / model_path), DensityMap.from_file(DATA / map_path)
        refined = BFactorRefinement(model, density_map, resolution).refine()
        fsc = [mean_fsc(density_map, model, resolution, b) for b in (refined.uniform, refined.b_factors)]
        q = q_scores(density_map, model.topology, model.positions)
        given = "–" if refined.cc_given is None else f"{refined.cc_given:.3f}"
        deposited = (
            "–"
            if np.ptp(model.b_factors) == 0
            else f"{pearson(model, refined.b_factors, model.b_factors):.2f}"
        )
        by_q = pearson(model, refined.b_factors, q.atoms)
        print(
            f"{name:17s} {refined.level:8s} CC {given}, {refined.cc_uniform:.3f} -> {refined.cc:.3f}, FSC {fsc[0]:.3f} -> "
            f"{fsc[1]:.3f}, Q {q.mean:.3f} (knows no B; r of B with it {by_q:.2f}), r with deposited B {deposited}, "
            f"B {refined.b_factors.min():.0f} to {refined.b_factors.max():.0f}, solvent {refined.solvent:.2f}, "
            f"{refined.seconds:.1f} s"
        )


def widths() -> None:
    """Print the width of an atom's one Gaussian that `match_blur` chooses, and that which refined B factors imply."""
    print("width of atoms in those of the map's resolution: of five, the best, and from B factors")
    for name, (model_path, map_path, resolution) in REAL.items():
        model, density_map = read_model(DATA / model_path), DensityMap.from_file(DATA / map_path)
        fit = DensityFit(density_map, model.topology, resolution, positions=model.positions)
        factors = np.linspace(0.8, 2.0, 25)
        started = time.process_time()
        similar = [fit.with_atoms_wider(factor).similarity(model.positions) for factor in factors]
        spent = time.process_time() - started
        five = max(
            (1.0, 1.1, 1.2, 1.35, 1.5),
            key=lambda factor: fit.with_atoms_wider(factor).similarity(model.positions),
        )
        uniform = {
            solvent: BFactorRefinement(model, density_map, resolution, solvent=solvent, level="group")
            .refine()
            .uniform
            for solvent in (False, True)
        }
        own = blurring_b_factor(resolution)
        implied = [np.sqrt((own + b + FORM_FACTOR_B) / own) for b in uniform.values()]
        best = factors[int(np.argmax(similar))]
        print(
            f"{name:17s} match_blur {five:.2f}, best {best:.2f} ({spent:.1f} s), from the uniform B "
            f"{implied[0]:.2f} without and {implied[1]:.2f} with solvent"
        )


FORM_FACTOR_B = 12.0
"""Å²: the width of a carbon atom's form factor near the middle of the frequencies of these maps."""

PARTS: dict[str, Callable[[], None]] = {
    "known": known,
    "occupancies": occupancies,
    "half-maps": half_maps,
    "real": real,
    "widths": widths,
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["known"], help=", ".join(PARTS))
    torch.set_num_threads(1)
    for part in parser.parse_args().parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
