"""Density, its gradients and its similarity to a target on the GPU: the launches, from checked arguments to results.

Every atom goes into the tile of 8x8x4 voxels where it lies (`gpu_tiles`, `gpu_atoms`). A program then takes a tile, collects the
atoms that reach it and writes its density once (`gpu_splat`), with the tile's part of the similarity's sums; tiles that no atom
reaches are neither written nor read. Once the sums are known the density is replaced by ∂S/∂ρ (`gpu_measures`), from which a
program for every few atoms gathers their forces (`gpu_gather`).

Nothing here waits for the GPU, allocates by the data or keeps anything between calls, so that calls can be captured in a CUDA
graph. Sums are in the order of the atoms in a tile, so that the same input gives the same bits.

Lists of the atoms by tile are made anew at each call. On an H200, lists that cost nothing and had no margin would save 9% of
192 µs for 100 000 atoms of one Gaussian in 256³ voxels, and 5% of 302 µs for five: splat and gather take 140 and 245 of these.
Lists kept until an atom has moved half of a margin save less, as movements have to be looked at and every tile has more
candidates.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .. import tuning
from ..table_checks import check_scale
from . import gpu_atoms, gpu_gather, gpu_measures, gpu_splat, gpu_tiles, measures
from .gpu_geometry import GEOMETRY_SLOTS, INVERSE_SLOTS
from .gpu_tiles import SCAN_BLOCK, TILE, TILE_X, TILE_Y, TILE_Z
from .reference import MAX_GAUSSIANS

# Programs that clear, and programs that share the tiles: more than a GPU runs at once, so that all end at about the same time.
CLEARING_PROGRAMS = 256
SPLAT_PROGRAMS = 8192
DIFFERENTIATING_PROGRAMS = 4096
COMPARED_AT_ONCE = 4096
# Up to here there are too few atoms to give a program of the gather more than one group.
_FEW_ATOMS = 40_000


class Configuration(NamedTuple):
    """How the two large kernels are launched; the results are the same to the last bit."""

    splat_registers: int  # At most so many for a thread; as `gather_registers`
    gather_registers: int
    gather_groups: int  # Groups of atoms for each program of the gather


_CANDIDATES = tuple(
    Configuration(splat, gather, groups)
    for splat, gather in ((96, 64), (96, 80), (128, 128), (168, 168))
    for groups in (1, 4)
)


def _default_configuration(n_atoms: int, gaussians: int) -> Configuration:
    """Return what was fastest on an H200. Ampere's multiprocessors have as many registers and run as many of these programs."""
    if gaussians > 1:
        return Configuration(128, 128, 4)
    return Configuration(96, 80, 4 if n_atoms > _FEW_ATOMS else 1)


class _ListedAtoms(NamedTuple):
    """The atoms in the order of their tiles: `start` of `gpu_tiles.scan`, and the tables of `gpu_atoms.arrange`."""

    start: Tensor
    in_space: Tensor
    to_corner: Tensor
    corner: Tensor
    gaussians: Tensor


class _Splat(NamedTuple):
    """What a splat returns beside the density: the listed atoms, the touched tiles and the sums over each of them."""

    listed: _ListedAtoms
    tiles: Tensor
    n_touched: Tensor
    sums: Tensor


class _Model:
    """What the operators have in common: checked arguments, and the launches up to the density."""

    def __init__(
        self,
        positions: Tensor,
        atoms: Tensor | None,
        amplitudes: Tensor,
        exponents: Tensor,
        cutoff: float,
        matrix: Tensor,
        origin: Tensor,
        shape: list[int],
        periodic: bool,
    ) -> None:
        self.n_atoms = positions.shape[0] if atoms is None else atoms.shape[0]
        if (
            positions.dim() != 2
            or positions.shape[1] != 3
            or positions.dtype not in (torch.float32, torch.float64)
        ):
            raise ValueError(
                f"positions must be float32 or float64 of shape (N, 3), not {_describe(positions)}"
            )
        for name, table in (("amplitudes", amplitudes), ("exponents", exponents)):
            if table.dtype != torch.float32 or table.dim() != 2 or table.shape[0] != self.n_atoms:
                raise ValueError(
                    f"{name} must be float32 of shape ({self.n_atoms}, C), not {_describe(table)}"
                )
        if amplitudes.shape != exponents.shape or not 1 <= amplitudes.shape[1] <= MAX_GAUSSIANS:
            raise ValueError(
                f"an atom has between 1 and {MAX_GAUSSIANS} Gaussians, as many amplitudes as exponents, "
                f"not {amplitudes.shape[1]} and {exponents.shape[1]}"
            )
        if not (math.isfinite(cutoff) and cutoff > 0):
            raise ValueError(f"cutoff must be positive and finite, not {cutoff}")
        if matrix.shape != (3, 3) or matrix.dtype != torch.float64:
            raise ValueError(f"matrix must be float64 of shape (3, 3), not {_describe(matrix)}")
        if origin.shape != (3,) or origin.dtype != torch.float64:
            raise ValueError(f"origin must be float64 of shape (3,), not {_describe(origin)}")
        if len(shape) != 3 or not all(0 < n < 1 << 30 for n in shape):
            raise ValueError(f"a grid has three sizes (nz, ny, nx) from 1 to 2^30, not {list(shape)}")
        self.positions, self.atoms = positions.detach().contiguous(), atoms
        self.amplitudes, self.exponents = amplitudes.detach().contiguous(), exponents.detach().contiguous()
        self.gaussians = amplitudes.shape[1]
        self.cutoff, self.matrix, self.origin = cutoff, matrix.contiguous(), origin.contiguous()
        self.shape, self.size, self.periodic = list(shape), tuple(reversed(shape)), periodic
        self.n_tiles = math.prod(
            triton.cdiv(n, tile.value) for n, tile in zip(self.size, (TILE_X, TILE_Y, TILE_Z))
        )
        self.wide = self.n_tiles * TILE.value > 2**31 - 1
        self.aligned = shape[2] % 4 == 0
        self.runs_aligned = self.aligned or not periodic
        self.words = gpu_atoms.words_of_gaussians(self.gaussians)
        self.inverse = self.empty(INVERSE_SLOTS, dtype=torch.float64)
        self.geometry = self.empty(GEOMETRY_SLOTS)
        self.configuration = _default_configuration(self.n_atoms, self.gaussians)

    def empty(self, *size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(size, dtype=dtype, device=self.positions.device)

    def begin(
        self,
        count: Tensor | None = None,
        touched: Tensor | None = None,
        totals: Tensor | None = None,
        gradient: Tensor | None = None,
    ) -> None:
        """Work out `inverse` and `geometry`, and clear counts, marks, totals and gradient."""
        n_tiles, n_totals, n_gradient = (
            0 if cleared is None else cleared.numel() for cleared in (count, totals, gradient)
        )
        block = SCAN_BLOCK.value
        blocks = triton.cdiv(max(n_tiles, n_totals, n_gradient), block)
        gpu_tiles.begin[(1 + min(blocks, CLEARING_PROGRAMS),)](
            self.matrix,
            self.cutoff,
            self.inverse,
            self.geometry,
            self.inverse if count is None else count,
            self.inverse if touched is None else touched,
            n_tiles,
            self.inverse if totals is None else totals,
            n_totals,
            self.inverse if gradient is None else gradient,
            n_gradient,
            BLOCK=block,
        )

    def location_arguments(self) -> tuple[Any, ...]:
        """Return the arguments of kernels that locate atoms on the grid."""
        atoms = self.geometry if self.atoms is None else self.atoms
        n = self.n_atoms, self.positions.shape[0]
        return (self.positions, atoms, *n, self.inverse, self.geometry, self.origin, *self.size)

    def listed(self, gradient: Tensor | None) -> tuple[_ListedAtoms, Tensor, Tensor]:
        """Return the atoms in the order of their tiles, the touched tiles and their number. Clear the gradient."""
        n, n_tiles = self.n_atoms, self.n_tiles
        blocks = triton.cdiv(n_tiles, SCAN_BLOCK.value)
        count, touched = self.empty(2, n_tiles, dtype=torch.int32)
        totals = self.empty(blocks, dtype=torch.int64)
        self.begin(count, touched, totals, gradient)
        start = self.empty(n_tiles + 1, dtype=torch.int32)
        tiles = self.empty(n_tiles, 4, dtype=torch.int32)
        n_touched = self.empty(1, dtype=torch.int32)
        tile_of, arrival, unsorted = self.empty(3, n, dtype=torch.int32)
        block = gpu_atoms.PLACE_BLOCK
        by_atom = (triton.cdiv(n, block),)
        lane_per_atom = {"BLOCK": block, "num_warps": triton.cdiv(block, 32)}
        selection = {"SELECTED": self.atoms is not None, "PERIODIC": self.periodic}
        if n:
            gpu_atoms.place[by_atom](
                *self.location_arguments(), tile_of, arrival, count, **selection, **lane_per_atom
            )
        gpu_tiles.mark[(triton.cdiv(n_tiles, gpu_tiles.MARK_BLOCK),)](
            count,
            touched,
            n_tiles,
            self.geometry,
            *self.size,
            PERIODIC=self.periodic,
            BLOCK=gpu_tiles.MARK_BLOCK,
        )
        gpu_tiles.scan[(blocks,)](count, touched, n_tiles, *self.size, totals, start, tiles, n_touched)
        listed = _ListedAtoms(
            start,
            self.empty(n, 4),
            self.empty(n, 4),
            self.empty(n, 4, dtype=torch.int32),
            self.empty(n, self.words),
        )
        if n:
            gpu_atoms.fill[by_atom](tile_of, arrival, n, start, unsorted, **lane_per_atom)
            gpu_atoms.arrange[by_atom](
                *self.location_arguments(),
                tile_of,
                start,
                start[-1:],
                unsorted,
                self.amplitudes,
                self.exponents,
                self.cutoff,
                *listed[1:],
                GAUSSIANS=self.gaussians,
                WORDS=self.words,
                ALIGNED=self.runs_aligned,
                **selection,
                **lane_per_atom,
            )
        return listed, tiles, n_touched

    def splat(
        self,
        density: Tensor,
        target: Tensor | None = None,
        moments: Tensor | None = None,
        total_weight: float = 1.0,
        measure: int = gpu_splat.DENSITY_ONLY.value,
        gradient: Tensor | None = None,
    ) -> _Splat:
        """Write the density of all tiles that atoms touch; with a target, also the sums of a measure. Clear the gradient."""
        listed, tiles, n_touched = self.listed(gradient)
        programs = min(self.n_tiles, SPLAT_PROGRAMS)
        buffer, blocks = gpu_splat.BUFFER.value, gpu_splat.BLOCKS.value
        sums = self.empty(len(measures.Sum), self.n_tiles)
        gpu_splat.splat[(programs,)](
            tiles,
            n_touched,
            listed.start,
            listed.in_space,
            listed.gaussians,
            self.geometry,
            *self.size,
            self.empty(4 * buffer * programs),
            self.empty(blocks * (buffer + 1) * programs, dtype=torch.int16),
            density,
            density if target is None else target,
            sums if moments is None else moments,
            total_weight,
            sums,
            self.n_tiles,
            GAUSSIANS=self.gaussians,
            WORDS=self.words,
            PERIODIC=self.periodic,
            MEASURE=measure,
            WIDE=self.wide,
            ALIGNED=self.aligned,
            num_warps=1,
            maxnreg=self.configuration.splat_registers,
        )
        return _Splat(listed, tiles, n_touched, sums)


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def _on(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Launch where the tensor is: Triton takes torch's current device."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


def density_splat(
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    shape: list[int],
    periodic: bool = False,
) -> Tensor:
    """Return what `openmm_density.kernels.density.density_splat` returns, with the same arguments."""
    model = _Model(positions, None, amplitudes, exponents, cutoff, matrix, origin, shape, periodic)
    with _on(positions):
        density = torch.zeros(model.shape, dtype=torch.float32, device=positions.device)
        model.splat(density)
    return density


def density_gather(
    gradient: Tensor,
    positions: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool = False,
    parameters: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `openmm_density.kernels.density.density_gather` returns, with the same arguments."""
    model = _Model(
        positions, None, amplitudes, exponents, cutoff, matrix, origin, list(gradient.shape), periodic
    )
    if gradient.dtype != torch.float32:
        raise ValueError(f"gradient must be float32, not {_describe(gradient)}")
    derivatives = (
        torch.empty_like(model.positions),
        torch.empty_like(model.amplitudes),
        torch.empty_like(model.exponents),
    )
    with _on(positions):
        model.begin()
        if model.n_atoms:
            gpu_gather.gather_all[(model.n_atoms,)](
                model.positions,
                model.n_atoms,
                model.inverse,
                model.origin,
                model.amplitudes,
                model.exponents,
                model.geometry,
                model.cutoff,
                *model.size,
                gradient.detach().contiguous(),
                *derivatives,
                GAUSSIANS=model.gaussians,
                PERIODIC=periodic,
                WIDE=model.wide,
                RUNS_AT_ONCE=32,
                num_warps=1,
            )
    if not parameters:
        return (
            derivatives[0],
            model.amplitudes.new_empty(model.n_atoms, 0),
            model.exponents.new_empty(model.n_atoms, 0),
        )
    return derivatives


def density_similarity(
    positions: Tensor,
    atoms: Tensor,
    amplitudes: Tensor,
    exponents: Tensor,
    cutoff: float,
    target: Tensor,
    moments: Tensor,
    matrix: Tensor,
    origin: Tensor,
    periodic: bool,
    measure: int,
    total_weight: float,
    scale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what the operator returns; atoms not among the positions are out of reach, as an error would wait for the GPU."""
    if target.dtype != torch.float32 or not target.is_contiguous():
        raise ValueError(
            f"target must be float32 and contiguous, not {_describe(target)} with strides {target.stride()}: "
            "pass target.float().contiguous()"
        )
    if (
        moments.dtype != torch.float64
        or moments.numel() != len(measures.Moment)
        or not moments.is_contiguous()
    ):
        raise ValueError(
            f"moments must be {len(measures.Moment)} contiguous float64 numbers, not {_describe(moments)}: "
            "take them from target_moments"
        )
    if atoms.dtype != torch.int64 or atoms.dim() != 1:
        raise ValueError(f"atoms must be int64 of shape (M,), not {_describe(atoms)}")
    if measure not in measures.NUMBERS:
        raise ValueError(
            f"there is no measure {measure}: use one of the constants of openmm_density.kernels.density"
        )
    if measure in measures.DIVIDED_BY_WEIGHT and not total_weight > 0:
        raise ValueError(f"the total weight must be positive, not {total_weight}")
    check_scale(scale)
    model = _Model(
        positions,
        atoms.contiguous(),
        amplitudes,
        exponents,
        cutoff,
        matrix,
        origin,
        list(target.shape),
        periodic,
    )

    def evaluate(configuration: Configuration) -> tuple[Tensor, Tensor]:
        model.configuration = configuration
        return _evaluate(model, target, moments, measure, total_weight, scale)

    with _on(positions):
        if positions.is_cuda:
            problem = (
                model.gaussians,
                model.n_atoms.bit_length(),
                target.numel().bit_length(),
                int(periodic),
            )
            chosen = tuning.choose("density_similarity", problem, model.configuration, _CANDIDATES, evaluate)
            return evaluate(chosen)
        return evaluate(model.configuration)


def _evaluate(
    model: _Model,
    target: Tensor,
    moments: Tensor,
    measure: int,
    total_weight: float,
    scale: Tensor | None,
) -> tuple[Tensor, Tensor]:
    # In storage order, and not filled: what is read of it has been written by the splat.
    density = model.empty(model.n_tiles * TILE.value)
    gradient = torch.empty_like(model.positions)
    splat = model.splat(density, target, moments, total_weight, measure, gradient)
    similarity = model.empty(dtype=torch.float64)
    coefficients = model.empty(len(measures.Coefficient))
    gpu_measures.compare[(1,)](
        splat.sums,
        model.n_tiles,
        splat.n_touched,
        moments,
        total_weight,
        moments if scale is None else scale.to(moments.device),
        similarity,
        coefficients,
        MEASURE=measure,
        SCALED=scale is not None,
        BLOCK=COMPARED_AT_ONCE,
        num_warps=16,
    )
    if model.n_atoms:
        gpu_measures.differentiate[(min(model.n_tiles, DIFFERENTIATING_PROGRAMS),)](
            splat.tiles,
            splat.n_touched,
            *model.size,
            density,
            target,
            coefficients,
            MEASURE=measure,
            WIDE=model.wide,
            ALIGNED=model.aligned,
            num_warps=1,
        )
        listed, chosen = splat.listed, model.configuration
        gpu_gather.gather_forces[
            (triton.cdiv(model.n_atoms, gpu_gather.ATOMS.value * chosen.gather_groups),)
        ](
            listed.start[-1:],
            listed.to_corner,
            listed.corner,
            listed.gaussians,
            model.geometry,
            model.cutoff,
            *model.size,
            density,
            gradient,
            GAUSSIANS=model.gaussians,
            WORDS=model.words,
            PERIODIC=model.periodic,
            WIDE=model.wide,
            ALIGNED=model.runs_aligned,
            GROUPS=chosen.gather_groups,
            num_warps=1,
            maxnreg=chosen.gather_registers,
        )
    return similarity, gradient
