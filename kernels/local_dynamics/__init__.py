"""Minimisation and dynamics of some atoms among fixed ones: a few hundred, too few for the calls of a simulation engine to pay.

The energy, in kJ/mol, with positions in nm, is that of

====================  ==============================  =====================================================================
terms                 parameters                      energy of each
====================  ==============================  =====================================================================
bonds                 b, k                            ½ k (r − b)²
angles                θ₀, k                           ½ k (θ − θ₀)²
torsions              n, δ, k                         k (1 + cos(n φ − δ))
held torsions         φ₀, t, k                        ½ k max(0, |φ − φ₀| − t)², with the difference between −π and π
maps                  scale                           scale × map(φ, ψ), as `openmm_density.kernels.torsion_maps` has them
pairs                 radius, polar, weight; k, h     ½ h k max(0, R + R′ − allowance · polar · polar′ − r)²
                      overlapping, width              + overlapping · w w′ exp(−r²/width)
map                   weight; slope                   −slope · w · m(**x**), m a cubic B-spline
====================  ==============================  =====================================================================

Pairs are those nearer than the cut-off, of which an atom moves, and that are not excluded; h is the hardness. Angles φ and ψ have
IUPAC's sign. Energies and gradients of bonded terms are float64, of pairs float32, added up in float64. All of it runs in the
calling thread, without Python's interpreter lock: the same input gives the same bits.

Minimisation is limited-memory BFGS (Nocedal, Math. Comput. 35, 773 (1980)), dynamics leapfrog.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..compilation import entry_points

__all__ = ["LocalDynamics", "LocalTerms", "MapTerms", "PairTerms", "SplineMap", "Terms"]


class Terms(NamedTuple):
    """Terms of one kind."""

    members: np.ndarray  # int (T, atoms of a term)
    parameters: np.ndarray  # (T, parameters), in the order of the table above


class MapTerms(NamedTuple):
    """Terms of two torsions that follow each other."""

    members: np.ndarray  # int (T, 5)
    map_of_term: np.ndarray  # int (T,)
    handedness: np.ndarray  # (T,), 1 or −1
    nodes: np.ndarray  # (K, n, n, 4), from `openmm_density.kernels.torsion_maps.spline_nodes`
    scale: float = 1.0


class PairTerms(NamedTuple):
    """What pairs of atoms have."""

    radii: np.ndarray  # `radii`, `polar`, `weights` (N,) in nm; 1 or 0; the weight of the atom's density.
    polar: np.ndarray
    weights: np.ndarray
    excluded: np.ndarray  # int (E, 2), pairs that count as none
    # `cutoff`, `repulsion`, `allowance`, `width`, `overlapping` in nm, kJ/mol/nm², nm, nm², kJ/mol.
    cutoff: float
    repulsion: float
    allowance: float
    width: float
    overlapping: float


class SplineMap(NamedTuple):
    """A map as a cubic B-spline."""

    coefficients: np.ndarray  # (nz, ny, nx), at least four along each axis
    to_index: np.ndarray  # (3, 3)
    # (3,), the place of a point **x** (nm), in voxels by z, y and x, is ``to_index @ x + shift``
    shift: np.ndarray
    # `low`, `high` (3,): places beyond which there is nothing; from 1 to 2 below the number of coefficients.
    low: np.ndarray
    high: np.ndarray
    slope: float  # kJ/mol


class LocalTerms(NamedTuple):
    """All terms of the energy of N atoms, those that move before those that do not."""

    masses: np.ndarray  # (M,), in dalton, of those that move
    bonds: Terms
    angles: Terms
    torsions: Terms
    held: Terms
    maps: Sequence[MapTerms]  # Two at most
    pairs: PairTerms
    density: SplineMap


_Whole, _Number = ctypes.c_int64, ctypes.c_double


class _Maps(ctypes.Structure):
    _fields_ = (
        ("count", _Whole),
        ("members", ctypes.c_void_p),
        ("map_of_term", ctypes.c_void_p),
        ("handedness", ctypes.c_void_p),
        ("nodes", ctypes.c_void_p),
        ("n", _Whole),
        ("scale", _Number),
    )


class _Terms(ctypes.Structure):
    """`LocalTerms` of interface.h."""

    _fields_ = (
        ("n_moving", _Whole),
        ("n_atoms", _Whole),
        ("masses", ctypes.c_void_p),
        *(
            field
            for name, member in (
                ("bond", "bonds"),
                ("angle", "angles"),
                ("torsion", "torsions"),
                ("held", "held"),
            )
            for field in (
                (f"n_{member}", _Whole),
                (member, ctypes.c_void_p),
                (f"{name}_parameters", ctypes.c_void_p),
            )
        ),
        ("ramachandran", _Maps),
        ("cmap", _Maps),
        *((name, ctypes.c_void_p) for name in ("radii", "polar", "weights", "excluded_offsets", "excluded")),
        *((name, _Number) for name in ("cutoff", "repulsion", "allowance", "width", "overlapping")),
        ("coefficients", ctypes.c_void_p),
        ("shape", 3 * _Whole),
        ("to_index", 9 * _Number),
        ("shift", 3 * _Number),
        ("low", 3 * _Number),
        ("high", 3 * _Number),
        ("slope", _Number),
    )


class LocalDynamics:
    """Minimise and move atoms with such an energy.

    Positions are arrays of shape (N, 3) in nm, of which the first M atoms move. Raises BuildError if the C++ cannot be
    compiled or loaded; ValueError if a shape is not as above, or an index is not that of an atom or a map.
    """

    def __init__(self, terms: LocalTerms) -> None:
        self._library = _library()
        self._held: list[np.ndarray] = []
        self._n_moving, self._n_atoms = len(terms.masses), len(terms.pairs.radii)
        _check(np.ndim(terms.masses) == 1 and self._n_moving <= self._n_atoms, "masses")
        packed = _Terms(
            n_moving=self._n_moving, n_atoms=self._n_atoms, masses=self._kept(terms.masses, float)
        )
        for name, member, size, count in (
            ("bond", "bonds", 2, 2),
            ("angle", "angles", 3, 2),
            ("torsion", "torsions", 4, 3),
            ("held", "held", 4, 3),
        ):
            members, parameters = getattr(terms, member)
            _check(np.shape(members) == (len(members), size), member)
            _check(np.shape(parameters) == (len(members), count), member)
            self._check_atoms(members, member)
            setattr(packed, f"n_{member}", len(members))
            setattr(packed, member, self._kept(members, np.int32))
            setattr(packed, f"{name}_parameters", self._kept(parameters, float))
        _check(len(terms.maps) <= 2, "maps")
        for name, maps in zip(("ramachandran", "cmap"), terms.maps):
            setattr(packed, name, self._packed_maps(maps))
        self._pack_pairs(packed, terms.pairs)
        self._pack_map(packed, terms.density)
        self._terms = packed

    def energy(self, positions: np.ndarray, hardness: float = 1.0) -> tuple[float, np.ndarray]:
        """Return the energy, and its gradient of shape (M, 3), in kJ/mol and nm."""
        positions = self._checked(positions)
        gradient = np.empty((self._n_moving, 3))
        energy = self._library.openmm_density_local_energy(
            self._terms, positions.ctypes.data, hardness, gradient.ctypes.data
        )
        return energy, gradient

    def minimized(
        self, positions: np.ndarray, iterations: int, hardness: float = 1.0, tolerance: float = 10.0
    ) -> tuple[float, np.ndarray]:
        """Return energy and positions after so many iterations, or once the RMS gradient is below the tolerance (kJ/mol/nm)."""
        positions = self._checked(positions).copy()
        energy = self._library.openmm_density_local_minimize(
            self._terms, positions.ctypes.data, hardness, iterations, tolerance
        )
        return energy, positions

    def moved(
        self,
        positions: np.ndarray,
        velocities: np.ndarray,
        steps: int,
        timestep: float,
        hardness: float = 1.0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities (M, 3; nm/ps) after so many steps of so many ps."""
        positions = self._checked(positions).copy()
        velocities = np.array(velocities, dtype=np.float64)
        _check(velocities.shape == (self._n_moving, 3), "velocities")
        self._library.openmm_density_local_steps(
            self._terms, positions.ctypes.data, velocities.ctypes.data, hardness, steps, timestep
        )
        return positions, velocities

    def _checked(self, positions: np.ndarray) -> np.ndarray:
        positions = np.ascontiguousarray(positions, dtype=np.float64)
        _check(positions.shape == (self._n_atoms, 3), "positions")
        return positions

    def _kept(self, values: Any, kind: Any) -> int:
        """Return the address of an array, which lives as long as this object."""
        self._held.append(np.ascontiguousarray(values, dtype=kind))
        return self._held[-1].ctypes.data

    def _check_atoms(self, members: np.ndarray, what: str) -> None:
        members = np.asarray(members)
        _check(not members.size or (members.min() >= 0 and members.max() < self._n_atoms), what)

    def _packed_maps(self, maps: MapTerms) -> _Maps:
        count, size = len(maps.members), np.shape(maps.nodes)
        _check(
            np.shape(maps.members) == (count, 5) and len(size) == 4 and size[1] == size[2] and size[3] == 4,
            "maps",
        )
        _check(len(maps.map_of_term) == len(maps.handedness) == count, "maps")
        _check(not count or (np.min(maps.map_of_term) >= 0 and np.max(maps.map_of_term) < size[0]), "maps")
        self._check_atoms(maps.members, "maps")
        return _Maps(
            count,
            self._kept(maps.members, np.int32),
            self._kept(maps.map_of_term, np.int32),
            self._kept(maps.handedness, np.float32),
            self._kept(maps.nodes, np.float32),
            size[1],
            maps.scale,
        )

    def _pack_pairs(self, packed: _Terms, pairs: PairTerms) -> None:
        for name in ("radii", "polar", "weights"):
            values = getattr(pairs, name)
            _check(np.shape(values) == (self._n_atoms,), name)
            setattr(packed, name, self._kept(values, np.float32))
        excluded = np.asarray(pairs.excluded, dtype=np.int64).reshape(-1, 2)
        self._check_atoms(excluded, "excluded")
        both = np.unique(np.concatenate([excluded, excluded[:, ::-1]]), axis=0)
        both = both[both[:, 0] < self._n_moving]
        counts = np.bincount(both[:, 0], minlength=self._n_moving)
        packed.excluded_offsets = self._kept(np.concatenate([[0], np.cumsum(counts)]), np.int32)
        packed.excluded = self._kept(both[:, 1], np.int32)
        for name in ("cutoff", "repulsion", "allowance", "width", "overlapping"):
            setattr(packed, name, getattr(pairs, name))

    def _pack_map(self, packed: _Terms, density: SplineMap) -> None:
        shape = np.shape(density.coefficients)
        _check(len(shape) == 3 and min(shape) >= 4, "coefficients")
        packed.coefficients, packed.slope = self._kept(density.coefficients, np.float32), density.slope
        packed.shape = type(packed.shape)(*shape)
        packed.to_index = type(packed.to_index)(*np.ravel(density.to_index).tolist())
        for name in ("shift", "low", "high"):
            setattr(packed, name, type(packed.shift)(*np.ravel(getattr(density, name)).tolist()))


def _check(sound: Any, what: str) -> None:
    if not sound:
        raise ValueError(
            f"{what} of local dynamics have a wrong shape, or an index that is none of an atom or a map"
        )


def _library() -> ctypes.CDLL:
    library = entry_points("local_dynamics")
    terms, pointer = ctypes.POINTER(_Terms), ctypes.c_void_p
    for name, result, arguments in (
        ("energy", _Number, (terms, pointer, _Number, pointer)),
        ("minimize", _Number, (terms, pointer, _Number, _Whole, _Number)),
        ("steps", None, (terms, pointer, pointer, _Number, _Whole, _Number)),
    ):
        function = getattr(library, f"openmm_density_local_{name}")
        function.restype, function.argtypes = result, arguments
    return library
