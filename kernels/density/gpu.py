"""Density, its gradients and its similarity to a target on the GPU.

Every atom goes into the tile of 8x8x4 voxels where it lies (`gpu_tiles`). A program then takes a tile, collects the atoms that
reach it and writes its density once, with the tile's part of the similarity's sums (`gpu_splat`); tiles that no atom reaches are
neither written nor read. Once the sums are known the density is replaced by dS/d(density) (`gpu_similarity`), from which a
program for every few atoms gathers their forces (`gpu_gather`). Between these kernels the density lies tile by tile, so that what
is near in space is near in memory.

Nothing here waits for the GPU, allocates by the data or keeps anything between calls, so that calls can be captured in a CUDA
graph. Sums are in the order of the atoms in a tile, so that the same input gives the same bits.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from .. import tuning
from . import gpu_gather, gpu_similarity, gpu_splat, gpu_tiles
from .gpu_tiles import SCAN_BLOCK, TILE, TILE_X, TILE_Y, TILE_Z

MAX_GAUSSIANS = 5
# Programs that clear, and programs that share the tiles: more than a GPU runs at once, so that none waits long for the last.
CLEARING_PROGRAMS = 256
SPLAT_PROGRAMS = 8192
DIFFERENTIATING_PROGRAMS = 4096
COMPARED_AT_ONCE = 4096
# Up to here there are too few atoms to give a program of the gather more than it looks at together.
_FEW_ATOMS = 40_000


class Configuration(NamedTuple):
    """How the two large kernels are launched; the results are the same to the last bit.

    Attributes
    ----------
    splat_registers, gather_registers : int
        At most so many registers for a thread.
    gather_turns : int
        How often a program of the gather turns to the next atoms.
    """

    splat_registers: int
    gather_registers: int
    gather_turns: int


_CANDIDATES = tuple(
    Configuration(splat, gather, turns)
    for splat, gather in ((96, 64), (96, 80), (128, 128), (168, 168))
    for turns in (1, 4)
)


def _default_configuration(n_atoms: int, gaussians: int) -> Configuration:
    """Return what was fastest on an H200. Ampere's multiprocessors have as many registers and run as many of these programs."""
    if gaussians > 1:
        return Configuration(128, 128, 4)
    return Configuration(96, 80, 4 if n_atoms > _FEW_ATOMS else 1)


class _Listed(NamedTuple):
    """The atoms in the order of their tiles."""

    start: Tensor
    in_space: Tensor
    to_corner: Tensor
    corner: Tensor
    gaussians: Tensor


class _Splat(NamedTuple):
    """What a splat leaves beside the density: the listed atoms, the touched tiles and the sums over each of them."""

    listed: _Listed
    tiles: Tensor
    n_touched: Tensor
    sums: Tensor


class _Model:
    """What the operators have in common: checked arguments, and the launches that place and list the atoms."""

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
                f"between 1 and {MAX_GAUSSIANS} Gaussians per atom, as many amplitudes as exponents, "
                f"not {amplitudes.shape[1]} and {exponents.shape[1]}"
            )
        if not (math.isfinite(cutoff) and cutoff > 0):
            raise ValueError(f"cutoff must be positive, not {cutoff}")
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
        self.words = 4 * triton.cdiv(2 * self.gaussians + 2, 4)
        self.inverse = self.empty(9, dtype=torch.float64)
        self.geometry = self.empty(18)
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
        """Work out what the grid means, and clear counts, marks, totals and gradient."""
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

    def where(self) -> tuple[Any, ...]:
        """Return the arguments that say where atoms are, and in what."""
        atoms = self.geometry if self.atoms is None else self.atoms
        n = self.n_atoms, self.positions.shape[0]
        return (self.positions, atoms, *n, self.inverse, self.geometry, self.origin, *self.size)

    def listed(self, gradient: Tensor | None) -> tuple[_Listed, Tensor, Tensor]:
        """Put the atoms in the order of their tiles; give them, the touched tiles and their number. Clear the gradient."""
        n, n_tiles = self.n_atoms, self.n_tiles
        blocks = triton.cdiv(n_tiles, SCAN_BLOCK.value)
        count, touched = self.empty(2, n_tiles, dtype=torch.int32)
        totals = self.empty(blocks, dtype=torch.int64)
        self.begin(count, touched, totals, gradient)
        start = self.empty(n_tiles + 1, dtype=torch.int32)
        tiles = self.empty(n_tiles, 4, dtype=torch.int32)
        n_touched = self.empty(1, dtype=torch.int32)
        tile_of, arrival, unsorted = self.empty(3, n, dtype=torch.int32)
        block = gpu_tiles.PLACE_BLOCK
        by_atom = (triton.cdiv(n, block),)
        a_lane_each = {"BLOCK": block, "num_warps": triton.cdiv(block, 32)}
        selection = {"SELECTED": self.atoms is not None, "PERIODIC": self.periodic}
        if n:
            gpu_tiles.place[by_atom](*self.where(), tile_of, arrival, count, **selection, **a_lane_each)
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
        listed = _Listed(
            start,
            self.empty(n, 4),
            self.empty(n, 4),
            self.empty(n, 4, dtype=torch.int32),
            self.empty(n, self.words),
        )
        if n:
            gpu_tiles.fill[by_atom](tile_of, arrival, n, start, unsorted, **a_lane_each)
            gpu_tiles.arrange[by_atom](
                *self.where(),
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
                **a_lane_each,
            )
        return listed, tiles, n_touched

    def splat(
        self,
        density: Tensor,
        target: Tensor | None = None,
        moments: Tensor | None = None,
        total_weight: float = 1.0,
        measure: int = -1,
        gradient: Tensor | None = None,
    ) -> _Splat:
        """Write the density of all tiles that atoms touch; with a target, also the sums of a measure. Clear the gradient."""
        listed, tiles, n_touched = self.listed(gradient)
        programs = min(self.n_tiles, SPLAT_PROGRAMS)
        waiting, blocks = gpu_splat.WAITING.value, gpu_splat.BLOCKS.value
        sums = self.empty(3, self.n_tiles)
        gpu_splat.splat[(programs,)](
            tiles,
            n_touched,
            listed.start,
            listed.in_space,
            listed.gaussians,
            self.geometry,
            *self.size,
            self.empty(4 * waiting * programs),
            self.empty(blocks * (waiting + 1) * programs, dtype=torch.int16),
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
    """Return what `openmm_density.kernels.density.density_splat` gives, with the same arguments."""
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
    """Return what `openmm_density.kernels.density.density_gather` gives, with the same arguments."""
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
                RUNS=32,
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
    """Return what `openmm_density.kernels.density.density_similarity` gives, with the same arguments.

    Indices in `atoms` that are not among the positions count as atoms out of reach: to raise an error would be to wait for the
    GPU.
    """
    if target.dtype != torch.float32 or not target.is_contiguous():
        raise ValueError(f"target must be contiguous float32, not {_describe(target)}")
    if moments.dtype != torch.float64 or moments.numel() != 6 or not moments.is_contiguous():
        raise ValueError("moments must be those of target_moments")
    if atoms.dtype != torch.int64 or atoms.dim() != 1:
        raise ValueError(f"atoms must be int64 of shape (M,), not {_describe(atoms)}")
    if not gpu_similarity.CROSS_CORRELATION.value <= measure <= gpu_similarity.LEAST_SQUARES.value:
        raise ValueError(f"there is no measure {measure}")
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
    # Tile by tile, and not filled: what is read of it has been written by the tiles.
    density = model.empty(model.n_tiles * TILE.value)
    gradient = torch.empty_like(model.positions)
    splat = model.splat(density, target, moments, total_weight, measure, gradient)
    similarity = model.empty(dtype=torch.float64)
    coefficients = model.empty(3)
    gpu_similarity.compare[(1,)](
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
        gpu_similarity.differentiate[(min(model.n_tiles, DIFFERENTIATING_PROGRAMS),)](
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
        gpu_gather.gather_forces[(triton.cdiv(model.n_atoms, gpu_gather.ATOMS.value * chosen.gather_turns),)](
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
            TURNS=chosen.gather_turns,
            num_warps=1,
            maxnreg=chosen.gather_registers,
        )
    return similarity, gradient
