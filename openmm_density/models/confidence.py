"""The confidence of a prediction: pLDDT, and the errors and B factors that it implies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..base.errors import as_argument

UNSURE = 50.0
"""pLDDT below which a residue is as likely disordered as predicted (K. Tunyasuvunakool et al., Nature 596, 590 (2021))."""

SURE = 70.0
"""pLDDT from which a backbone is generally right, by the same authors."""
# Å²: the largest B factor that fits the column of a PDB file.
_LARGEST_B = 999.99


@dataclass(frozen=True)
class Confidence:
    """The confidence of a prediction in its atoms.

    Attributes
    ----------
    plddt : np.ndarray, shape (N,)
        0 to 100, NaN where the file says nothing.
    program : str
        The program that predicted it, such as ``AlphaFold``; empty where unknown.
    column : np.ndarray, shape (N,), or None
        The B column of the file, where that holds pLDDT; else it holds B factors.
    told_by : str
        How it was recognised, as in ``its header``.
    scale : float
        The factor by which the column is multiplied.
    column_of_alternates : np.ndarray, shape (K,)
        That of the model's `Alternates`.
    errors : np.ndarray of float32, shape (R, R), or None
        Expected error of each residue, in Å, when aligned on each other one (PAE); NaN where the file says nothing. See
        `openmm_density.models.predicted_errors`.
    trim : float or None
        The confidence below which residues of the file were left out.
    """

    plddt: np.ndarray
    program: str
    column: np.ndarray | None
    told_by: str
    scale: float = 1.0
    column_of_alternates: np.ndarray = field(default_factory=lambda: np.empty(0))
    errors: np.ndarray | None = None
    trim: float | None = None

    def of_atoms(
        self, before: Sequence[tuple[object, ...]], after: Sequence[tuple[object, ...]], trim: float
    ) -> Confidence:
        """Return the confidence of the remaining atoms, by the keys that identify them."""
        places = {name: k for k, name in enumerate(before)}
        kept = [places[name] for name in after]
        column = None if self.column is None else self.column[kept]
        return replace(self, plddt=self.plddt[kept], column=column, trim=trim)

    def sentence(self) -> str:
        """Return a sentence that tells the user what the model is taken for."""
        by = f" by {self.program}" if self.program else ""
        what = f"Taken for a prediction{by}, told by {self.told_by}: "
        if self.column is None:
            what += "its pLDDT is kept beside its B factors"
        else:
            what += (
                "its B column is pLDDT, and B factors begin as 8π²/3 (1.5 Å exp(4 (0.7 - pLDDT/100)))² "
                "(Oeffner et al., Acta Cryst. D78, 1303 (2022))"
            )
        return f"{what}. If that is wrong, say {as_argument('predicted', 'no')}."


def residue_means(values: np.ndarray, residue_of: np.ndarray, n_residues: int) -> np.ndarray:
    """Return the means of finite values over residues, (R,); NaN for residues without any."""
    known = np.isfinite(values)
    counts = np.bincount(residue_of[known], minlength=n_residues)
    sums = np.bincount(residue_of[known], values[known], n_residues)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def plddt_error(plddt: np.ndarray) -> np.ndarray:
    """Return the error in Å implied by pLDDT from 0 to 100, Δ = 1.5 Å exp(4 (0.7 - pLDDT/100)).

    From N. Hiranuma et al., Nat. Commun. 12, 1340 (2021), as in R. D. Oeffner et al., Acta Cryst. D78, 1303 (2022); pLDDT 50 is
    assumed where there is none.
    """
    return 1.5 * np.exp(4 * (0.7 - np.nan_to_num(plddt, nan=UNSURE) / 100))


def b_factors_of_plddt(plddt: np.ndarray) -> np.ndarray:
    """Return B factors in Å² for pLDDT from 0 to 100, B = 8π²/3 Δ² with `plddt_error`, up to what a PDB file holds."""
    return np.minimum(8 * np.pi**2 / 3 * plddt_error(plddt) ** 2, _LARGEST_B)
