"""Measured amplitudes with a known truth: a model, solvent, an anisotropic scale and errors."""

from pathlib import Path

import gemmi
import numpy as np

K, K_SOL, B_SOL, TENSOR = 2.5, 0.35, 45.0, (3.0, -2.0, -1.0, 0.0, 0.8, 0.0)


def direct_structure_factors(structure: gemmi.Structure, hkl: np.ndarray) -> np.ndarray:
    """Return structure factors by gemmi's direct summation."""
    calculator = gemmi.StructureFactorCalculatorX(structure.cell)
    return np.array([calculator.calculate_sf_from_model(structure[0], list(index)) for index in hkl.tolist()])


def simulated(
    structure: gemmi.Structure, resolution: float, error: float = 0.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indices, amplitudes and complex structure factors, the latter without scale.

    ``error`` is that of a complex number beside each, in root mean squares of its shell.
    """
    cell, group = structure.cell, gemmi.SpaceGroup(structure.spacegroup_hm)
    hkl = gemmi.make_miller_array(cell, group, resolution)
    hkl = np.ascontiguousarray(hkl[~group.operations().systematic_absences(hkl)], dtype=np.int32)
    calculator = gemmi.DensityCalculatorX()
    calculator.d_min, calculator.rate, calculator.cutoff = resolution, 2.0, 1e-6
    calculator.set_refmac_compatible_blur(structure[0])
    calculator.set_grid_cell_and_spacegroup(structure)
    calculator.put_model_density_on_grid(structure[0])
    atoms = gemmi.transform_map_to_f_phi(calculator.grid).get_value_by_hkl(hkl, unblur=calculator.blur)
    mask = gemmi.FloatGrid()
    mask.setup_from(structure, spacing=0.5)
    gemmi.SolventMasker(gemmi.AtomicRadiiSet.Cctbx).put_mask_on_float_grid(mask, structure[0])
    solvent = gemmi.transform_map_to_f_phi(mask).get_value_by_hkl(hkl)
    s2 = cell.calculate_1_d2_array(hkl)
    true = atoms + K_SOL * np.exp(-B_SOL * s2 / 4) * solvent
    rng = np.random.default_rng(seed)
    size = np.empty(len(hkl))
    for shell in np.array_split(np.argsort(s2), 20):
        size[shell] = np.sqrt(np.mean(np.abs(true[shell]) ** 2))
    centric = group.operations().centric_flag_array(hkl)
    parts = rng.normal(size=(2, len(hkl)))
    # Of a centric one the error lies along its phase, and is as large.
    noise = np.where(centric, parts[0] * np.exp(1j * np.angle(true)), (parts[0] + 1j * parts[1]) / np.sqrt(2))
    true = true + error * size * noise
    star = hkl @ np.array(cell.frac.mat.tolist())
    b11, b22, b33, b12, b13, b23 = TENSOR
    tensor = np.array([[b11, b12, b13], [b12, b22, b23], [b13, b23, b33]])
    scale = K * np.exp(-np.einsum("ni,ij,nj->n", star, tensor, star) / 4)
    return hkl, scale * np.abs(true), true


def write_mtz(
    path: Path, structure: gemmi.Structure, hkl: np.ndarray, columns: dict[str, tuple[str, np.ndarray]]
) -> Path:
    """Write an MTZ file of columns, each with its type."""
    mtz = gemmi.Mtz(with_base=True)
    mtz.spacegroup = gemmi.SpaceGroup(structure.spacegroup_hm)
    mtz.set_cell_for_all(structure.cell)
    mtz.add_dataset("simulated")
    for label, (kind, _) in columns.items():
        mtz.add_column(label, kind)
    mtz.set_data(np.column_stack([hkl, *(values for _, values in columns.values())]).astype(np.float32))
    mtz.write_to_file(str(path))
    return path


def usual_columns(
    amplitudes: np.ndarray, free: np.ndarray | None, labels: tuple[str, str, str] = ("FP", "SIGFP", "FREE")
) -> dict[str, tuple[str, np.ndarray]]:
    """Return amplitudes, deviations of 3%, and flags in CCP4's convention."""
    sigma = 0.03 * amplitudes + 0.01 * amplitudes.mean()
    found = {labels[0]: ("F", amplitudes), labels[1]: ("Q", sigma)}
    if free is not None:
        found[labels[2]] = ("I", np.where(free, 0, 1 + np.arange(len(free)) % 19))
    return found
