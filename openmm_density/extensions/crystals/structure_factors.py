"""Structure factors of a model and of the solvent around it, by gemmi."""

from __future__ import annotations

from dataclasses import dataclass

import gemmi
import numpy as np

SOLVENT_SPACING = 0.6
"""Å between the points of the solvent's mask, at most; a quarter of the resolution where that is coarser."""


@dataclass(frozen=True)
class CalculatedAmplitudes:
    """Structure factors of a model, on an absolute scale (electrons)."""

    # `atoms`, `solvent` complex128 (N,) of the atoms, and of the space that they and their mates leave, filled with 1
    # electron per Å³.
    atoms: np.ndarray
    solvent: np.ndarray


def calculated(structure: gemmi.Structure, hkl: np.ndarray, resolution: float) -> CalculatedAmplitudes:
    """Return the structure factors of a model with X-ray form factors (IT92) and B factors, and of a mask of the solvent.

    Both come from a grid by fast Fourier transform; the densities of the atoms are widened first by a B factor that is taken
    off again, so that the grid does not show. The mask is that of Jiang and Brünger (J. Mol. Biol. 1994, 243, 100-115), as
    gemmi makes it with the radii of cctbx. `hkl` int32 (N, 3); `resolution` of the finest of these, in Å.
    """
    model = structure[0]
    calculator = gemmi.DensityCalculatorX()
    calculator.d_min = resolution
    calculator.rate = 1.5
    calculator.cutoff = 1e-6
    calculator.set_refmac_compatible_blur(model)
    calculator.set_grid_cell_and_spacegroup(structure)
    calculator.put_model_density_on_grid(model)
    atoms = gemmi.transform_map_to_f_phi(calculator.grid).get_value_by_hkl(hkl, unblur=calculator.blur)
    mask = gemmi.FloatGrid()
    mask.setup_from(structure, spacing=min(SOLVENT_SPACING, resolution / 4))
    gemmi.SolventMasker(gemmi.AtomicRadiiSet.Cctbx).put_mask_on_float_grid(mask, model)
    solvent = gemmi.transform_map_to_f_phi(mask).get_value_by_hkl(hkl)
    return CalculatedAmplitudes(atoms.astype(np.complex128), solvent.astype(np.complex128))
