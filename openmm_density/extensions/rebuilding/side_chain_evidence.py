"""Which residue the density beside each place of a backbone speaks for: evidence on the register, to 4 Å."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from typing import NamedTuple

import numpy as np
from openmm import app

from ...fitting.fit_map import FitMap
from ...fitting.protocols import REGISTERED
from ...maps.density_map import DensityMap
from ...models.chemistry.backbone import BACKBONE, NamedAtoms, atoms_by_name, peptide_chains

AMINO_ACIDS = (
    *("ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE"),
    *("LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL"),
)
FREQUENCIES = np.array(
    [8.3, 5.5, 4.1, 5.5, 1.4, 3.9, 6.7, 7.1, 2.3, 5.9, 9.7, 5.8, 2.4, 3.9, 4.7, 6.6, 5.4, 1.1, 2.9, 6.8]
)
"""How common they are in proteins, in % (UniProtKB/Swiss-Prot)."""
ENERGY_PER_NAT = 400.0
"""kJ/mol of a shift's energy, right after its annealing, that outweigh a factor of e of evidence. Right shifts start strained, by
up to 1000 kJ/mol where a helix was shifted by three residues, which dynamics relieves; most wrong ones by more."""

_TABLE = "side_chain_densities.npz"
# Å. The points are on a grid in the cone that side chains are in, about the direction of Cβ.
_SPACING, _FARTHEST, _COSINE = 1.4, 7.5, 0.35
# Residues over which the density of the backbone is averaged, and the least part of its median that it is taken for.
_WINDOW, _LEAST_PART = 9, 0.3


def _points() -> np.ndarray:
    count = int(_FARTHEST / _SPACING) + 1
    axis = _SPACING * (np.arange(-count, count + 1) + 0.3)
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    distance = np.linalg.norm(points, axis=1)
    return points[(distance < _FARTHEST) & (points[:, 0] > _COSINE * distance)]


POINTS = _points()
"""Å, shape (P, 3), about Cα: the first axis runs to Cβ, the second, square to it, along the backbone."""


class SideChainTable(NamedTuple):
    """What density says about types of residues, at some resolutions."""

    resolutions: np.ndarray  # (R,), Å
    weights: np.ndarray  # (R, 20, P), of the density at `POINTS`, for each of the `AMINO_ACIDS`
    constants: np.ndarray  # (R, 20), added to it


@lru_cache(maxsize=1)
def side_chain_table() -> SideChainTable:
    """Read the table, which ``examples/benchmarks/side_chain_densities.py`` learns from simulated maps."""
    content = files(__package__).joinpath(_TABLE).read_bytes()
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return SideChainTable(*(arrays[name].astype(np.float64) for name in SideChainTable._fields))


class SideChainEvidence:
    """How much more likely the density beside a place of a backbone is with one residue than with any.

    The density around each Cα, in the frame of N, Cα and C and in units of that of the backbone nearby, is weighed by linear
    discriminants (Fisher 1936) that were learnt from simulated maps of some proteins: they say how large a side chain is, where
    it leads, and whether it is forked or flat, over all rotamers that it has. Only the backbone of the model counts, and nothing
    of its side chains: a model whose register is wrong is not made to look right by side chains that were fitted.

    `resolution` in Å, of the map. Attributes: `density_map` as given.
    """

    def __init__(self, topology: app.Topology, density_map: DensityMap, resolution: float) -> None:
        self.density_map = density_map
        table = side_chain_table()
        nearest = int(np.abs(table.resolutions - resolution).argmin())
        self._weights, self._constants = table.weights[nearest], table.constants[nearest]
        named = atoms_by_name(topology)
        self._backbone = backbone_atoms(named)
        place_of = {name: place for place, name in enumerate(AMINO_ACIDS)}
        self._types = np.array([place_of.get(names.residue.name, -1) for names in named])

    def log_odds(self, positions: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Return the evidence for each residue of a chain in each of its places.

        `positions` (N, 3) in Å; `chain` int (n,): indices of the residues, each with N, Cα and C. Returns (n, n),
        natural logarithms, by residue and place: of how likely the density beside the place is with the residue, over
        how likely it is with any, by their `FREQUENCIES`. 0 for residues of other types.
        """
        return self.log_odds_in(self.backbone(positions, chain), chain)

    def backbone(self, positions: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Return the positions (n, 4, 3) of N, Cα, C and O of a chain, with Cα for what a residue lacks."""
        return positions[self._backbone[chain]]

    def log_odds_in(self, places: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Return the evidence (n, m) for each residue of a chain in places of a backbone, as `log_odds` does.

        `places` (m, 4, 3) in Å: N, Cα, C and O, one place after the other; `chain` int (n,): indices of the residues.
        """
        types = self._types[chain]
        return np.where(types[:, None] >= 0, self._of_types(places).T[types], 0.0)

    def _of_types(self, places: np.ndarray) -> np.ndarray:
        """Return the evidence (m, 20) for each type in places of a backbone."""
        fit = density_around(self.density_map, places) @ self._weights.T + self._constants
        fit -= fit.max(axis=1, keepdims=True)
        return fit - np.log(np.exp(fit) @ (FREQUENCIES / FREQUENCIES.sum()))[:, None]

    def _at_home(self, positions: np.ndarray, chain: np.ndarray) -> np.ndarray:
        """Return the evidence (n,) for each residue of a chain in its own place."""
        types = self._types[chain]
        fit = self._of_types(self.backbone(positions, chain))
        return np.where(types >= 0, fit[np.arange(len(chain)), types], 0.0)

    def nearby(self, positions: np.ndarray, chain: np.ndarray, region: np.ndarray) -> float:
        """Return the sum of the `log_odds`, where they are, of those residues of a chain that see whether some of it move.

        `positions` (N, 3) in Å.
        """
        places = np.flatnonzero(np.isin(chain, region))
        part = chain[max(places[0] - 2 * _WINDOW, 0) : places[-1] + 2 * _WINDOW + 1]
        return self.total(positions, [part])

    def total(self, positions: np.ndarray, chains: list[np.ndarray]) -> float:
        """Return the sum of the `log_odds` of all residues of some chains where they are."""
        return float(sum(self._at_home(positions, chain).sum() for chain in chains))


def evidence_in(fit_map: FitMap, topology: app.Topology) -> SideChainEvidence | None:
    """Return what a map says of a model's registers; None where it does not show side chains."""
    if fit_map.resolution > REGISTERED:
        return None
    return SideChainEvidence(topology, fit_map.density_map, fit_map.resolution)


def best_of_models(
    fit_map: FitMap, topology: app.Topology, models: np.ndarray, energies: np.ndarray
) -> tuple[int, np.ndarray | None]:
    """Return which of some models is best by its energy and by the density beside its backbone, and what that says.

    `models` (R, N, 3) in Å; `energies` (R,) in kJ/mol. The evidence (R,) is in natural logarithms; None where the map does not
    show it.
    """
    evidence, cost = evidence_in(fit_map, topology), energies / ENERGY_PER_NAT
    if evidence is None:
        return int(np.argmin(cost)), None
    _, chains = peptide_chains(topology)
    found = np.array([evidence.total(model, chains) for model in models])
    return int(np.argmin(cost - found)), found


def backbone_atoms(residues: list[NamedAtoms]) -> np.ndarray:
    """Return the indices (number of residues, 4) of N, Cα, C and O, with Cα for what a residue lacks; −1 where it has no Cα."""
    return np.array([[names.get(n, names.get("CA", -1)) for n in BACKBONE] for names in residues])


def density_around(
    density_map: DensityMap,
    backbone: np.ndarray,
    moves: np.ndarray | None = None,
    turns: np.ndarray | None = None,
) -> np.ndarray:
    """Return the density at `POINTS` about each residue of a chain, in units of that of the backbone nearby.

    `backbone` (n, 4, 3) in Å: N, Cα, C and O; `moves` (n, 3) in Å, by which the points are displaced.
    """
    alpha, axes = backbone[:, 1], residue_axes(backbone)
    if moves is not None:
        alpha = alpha + moves
    if turns is not None:
        axes = turns @ axes
    points = alpha[:, None] + POINTS @ axes
    found = _values(density_map, points)
    own = _values(density_map, backbone).mean(axis=1)
    half = _WINDOW // 2
    level = np.convolve(np.pad(own, half, mode="edge"), np.full(_WINDOW, 1 / _WINDOW), mode="valid")
    least = max(_LEAST_PART * float(np.median(level)), np.finfo(np.float32).tiny)
    return found / np.maximum(level, least)[:, None]


def residue_axes(backbone: np.ndarray) -> np.ndarray:
    """Return the axes, as rows of (n, 3, 3), of residues by N, Cα and C: to Cβ, along the backbone, and square to both."""
    nitrogen, alpha, carbon = backbone[:, 0], backbone[:, 1], backbone[:, 2]
    to_nitrogen, to_carbon = _unit(nitrogen - alpha), _unit(carbon - alpha)
    # Cβ of an L-amino acid with tetrahedral angles.
    beta = _unit(0.58 * _unit(-to_nitrogen - to_carbon) + 0.815 * _unit(np.cross(to_nitrogen, to_carbon)))
    along = to_carbon - to_nitrogen
    along = _unit(along - (along * beta).sum(axis=1, keepdims=True) * beta)
    return np.stack([beta, along, np.cross(beta, along)], axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _values(density_map: DensityMap, points: np.ndarray) -> np.ndarray:
    values = density_map.value_at(points.reshape(-1, 3))
    return np.nan_to_num(values, nan=0.0).reshape(points.shape[:-1])
