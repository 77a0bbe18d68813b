"""Trajectories against a map and against a reference model, on mdtraj."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import mdtraj
import numpy as np

from .base.errors import InputError, level_outside
from .base.units import ANGSTROM_PER_NANOMETER, resolution_in_angstrom, takes_units
from .base.wording import listing
from .maps.checks import check_map, check_resolution
from .maps.grids import index_reach
from .maps.model_density import MASK_RADIUS
from .models.matching import ca_rmsd, match_alpha_carbons, residues_of
from .models.trajectory_files import as_openmm_topology, load_trajectory
from .validation.correlation import MapCorrelation
from .validation.fsc import ShellCorrelation, model_fsc
from .validation.q_score import SIGMA, QScores, q_scores

if TYPE_CHECKING:
    from .maps.density_map import DensityMap

__all__ = [
    "QScores",
    "Scores",
    "ShellCorrelation",
    "ca_rmsd",
    "correlation",
    "frames_in_map",
    "fsc",
    "load_trajectory",
    "match_alpha_carbons",
    "q_score",
    "residue_correlation",
    "score",
]

Progress = Callable[[int, int], None]

_MOST_NAMED = 10


@dataclass(frozen=True)
class Scores:
    """Correlations of the frames of a trajectory with a map.

    Attributes
    ----------
    resolution : float
        The resolution in Å at which the model's density was cut.
    frames : ndarray of int, shape (n_frames,)
        The scored frames, counted from 0 in the trajectory.
    times : ndarray of float, shape (n_frames,), or None
        Their times in ps; None where the trajectory's are not numbers, as `load_trajectory` leaves them for files without times.
    cc_mask : ndarray of float, shape (n_frames,)
        The correlation over the voxels within 3 Å of a non-hydrogen atom.
    residue_correlations : ndarray of float, shape (n_frames, n_residues)
        The same around every residue alone; NaN where it is undefined.
    residue_labels : tuple of str
        Chain, name and number of every residue, as in ``A HIS 57B``.
    """

    resolution: float
    frames: np.ndarray
    times: np.ndarray | None
    cc_mask: np.ndarray
    residue_correlations: np.ndarray
    residue_labels: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers for JSON; an undefined correlation is None, and unknown times are left out."""
        residues = self.residue_correlations.astype(object)
        residues[np.isnan(self.residue_correlations)] = None
        return {
            "resolution": self.resolution,
            "frames": self.frames.tolist(),
            **({} if self.times is None else {"times": self.times.tolist()}),
            "cc_mask": self.cc_mask.tolist(),
            "residue_labels": list(self.residue_labels),
            "residue_correlations": residues.tolist(),
        }


@takes_units("resolution")
def score(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> Scores:
    """Correlate the frames of a trajectory with a map, as a whole and residue by residue.

    The correlations are those of `openmm_density.validation.correlation`. Positions are taken as
    they are: neither superposed nor moved to another periodic image. A frame outside the map has 0 as its correlation.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
        The frames, in the frame of the map.
    density_map : DensityMap
        The map.
    resolution : float or Quantity
        Resolution in Å.
    stride : int
        Score every stride-th frame, from the first.
    progress : callable, optional
        Called after every frame with how many frames are done, and how many there are.

    Raises
    ------
    InputError
        If trajectory or map is none, such as the path of one, the stride or the resolution is not positive, the
        resolution is finer than the map's voxels or coarser than the map is wide, an element has no form factor, no
        frame is in the map, or one has positions that are not numbers.

    Warns
    -----
    UserWarning
        Where frames are outside the map.
    """
    frames = _frames(trajectory, density_map, stride)
    _check_frames_in_map(trajectory, density_map, frames)
    measure = MapCorrelation(density_map, as_openmm_topology(trajectory.topology), resolution)
    overall = np.empty(len(frames))
    by_residue = np.empty((len(frames), trajectory.n_residues))
    for row, values in enumerate(_over_frames(measure.evaluate, trajectory, frames, progress)):
        overall[row], by_residue[row] = values
    times = np.asarray(trajectory.time, dtype=np.float64)[frames]
    return Scores(
        resolution=resolution_in_angstrom(resolution),
        frames=frames,
        times=times if np.isfinite(times).all() else None,
        cc_mask=overall,
        residue_correlations=by_residue,
        residue_labels=tuple(residue.label for residue in residues_of(trajectory.topology)),
    )


def frames_in_map(trajectory: mdtraj.Trajectory, density_map: DensityMap) -> np.ndarray:
    """Return which frames have an atom within 3 Å of the map, and so something to correlate.

    Returns
    -------
    np.ndarray of bool, shape (n_frames,)
        True for every frame where the map is that of a crystal's cell.
    """
    return _in_map(trajectory, density_map, _frames(trajectory, density_map))


@takes_units("resolution")
def correlation(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """Return the correlation of every frame with a map, as every table of this package reports it.

    Parameters, errors and warnings are those of `score`.

    Returns
    -------
    np.ndarray of float64, shape (n_frames,)
        See `openmm_density.validation.correlation.cc_mask`.
    """
    return _correlated(MapCorrelation.cc_mask, trajectory, density_map, resolution, stride, progress)


@takes_units("resolution")
def residue_correlation(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> np.ndarray:
    """Return the correlation of every residue with a map in every frame.

    Parameters, errors and warnings are those of `score`.

    Returns
    -------
    np.ndarray of float64, shape (n_frames, n_residues)
        NaN where it is undefined, see `openmm_density.validation.correlation.residue_correlations`.
    """
    return _correlated(
        MapCorrelation.residue_correlations, trajectory, density_map, resolution, stride, progress
    )


@takes_units("sigma")
def q_score(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    *,
    sigma: Any = SIGMA,
    stride: int = 1,
    progress: Progress | None = None,
) -> QScores:
    """Return the Q-scores of every frame (Pintilie et al. 2020), see `openmm_density.validation.q_score.q_scores`.

    Parameters
    ----------
    trajectory : mdtraj.Trajectory
        The frames, in the frame of the map.
    density_map : DensityMap
        The map.
    sigma : float or Quantity
        Width of the reference Gaussian in Å: 0.6 as published, 0.4 as on EMDB's validation pages.
    stride : int
        Score every stride-th frame, from the first.
    progress : callable, optional
        Called after every frame with how many frames are done, and how many there are.

    Returns
    -------
    QScores
        ``mean`` (n_frames,), ``residues`` (n_frames, n_residues) and ``atoms`` (n_frames, n_atoms); NaN where there is none.

    Raises
    ------
    InputError
        If trajectory or map is none, the stride or σ is not positive, there is no non-hydrogen atom, no frame is in the map, or
        one has positions that are not numbers.

    Warns
    -----
    UserWarning
        Where frames are outside the map.
    """
    frames = _frames(trajectory, density_map, stride)
    _check_frames_in_map(trajectory, density_map, frames)
    topology = as_openmm_topology(trajectory.topology)

    def evaluate(positions: np.ndarray) -> QScores:
        return q_scores(density_map, topology, positions, sigma=sigma)

    found = list(_over_frames(evaluate, trajectory, frames, progress))
    return QScores(*(np.array(values) for values in zip(*found)))


@takes_units("resolution")
def fsc(
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    *,
    stride: int = 1,
    progress: Progress | None = None,
) -> list[ShellCorrelation]:
    """Return the Fourier shell correlation of a map with every frame, see `openmm_density.validation.fsc.model_fsc`.

    Parameters and errors are those of `score`; every frame must be in the map.

    Returns
    -------
    list of ShellCorrelation
        One curve for each frame; their shells differ with the size of the model. ``curve.crossing()`` says where it falls
        below 0.5, or that it does not.
    """
    frames = _frames(trajectory, density_map, stride)
    check_resolution(density_map, resolution_in_angstrom(resolution))
    topology = as_openmm_topology(trajectory.topology)

    def evaluate(positions: np.ndarray) -> ShellCorrelation:
        return model_fsc(density_map, topology, positions, resolution)

    return list(_over_frames(evaluate, trajectory, frames, progress))


def _correlated(
    measure: Callable[[MapCorrelation, np.ndarray], Any],
    trajectory: mdtraj.Trajectory,
    density_map: DensityMap,
    resolution: Any,
    stride: int,
    progress: Progress | None,
) -> np.ndarray:
    """Return a measure of every frame, by one `MapCorrelation`."""
    frames = _frames(trajectory, density_map, stride)
    _check_frames_in_map(trajectory, density_map, frames)
    evaluate = partial(
        measure, MapCorrelation(density_map, as_openmm_topology(trajectory.topology), resolution)
    )
    return np.array(list(_over_frames(evaluate, trajectory, frames, progress)))


def _frames(trajectory: mdtraj.Trajectory, density_map: DensityMap, stride: int = 1) -> np.ndarray:
    """Return the frames to look at, of what is a trajectory, in what is a map."""
    if not isinstance(trajectory, mdtraj.Trajectory):
        raise InputError(
            "must be an mdtraj.Trajectory",
            argument="trajectory",
            found=type(trajectory).__name__,
            remedy="read one with load_trajectory(path)",
        )
    check_map(density_map)
    if stride < 1:
        raise InputError(
            "must be 1 or more",
            argument="stride",
            found=stride,
            remedy="give 1 for every frame, 2 for every other",
        )
    return np.arange(0, trajectory.n_frames, stride)


def _in_map(trajectory: mdtraj.Trajectory, density_map: DensityMap, frames: np.ndarray) -> np.ndarray:
    if density_map.periodic:
        return np.ones(len(frames), dtype=bool)
    reach = index_reach(density_map.matrix, MASK_RADIUS)
    inside = np.empty(len(frames), dtype=bool)
    for row, frame in enumerate(frames):
        index = density_map.to_index(trajectory.xyz[frame].astype(np.float64) * ANGSTROM_PER_NANOMETER)
        inside[row] = ((index >= -reach) & (index <= density_map.size - 1 + reach)).all(axis=1).any()
    return inside


def _check_frames_in_map(trajectory: mdtraj.Trajectory, density_map: DensityMap, frames: np.ndarray) -> None:
    """Refuse a trajectory beside the map; warn of frames that are."""
    outside = frames[~_in_map(trajectory, density_map, frames)]
    # Frames with positions that are not numbers are refused when they are evaluated.
    outside = outside[np.isfinite(trajectory.xyz[outside]).all(axis=(1, 2))]
    if len(frames) and len(outside) == len(frames):
        raise InputError(
            "no frame of the trajectory lies in the map",
            remedy="check the map's origin, or place the model in the map first",
        )
    if len(outside):
        names = listing([str(frame) for frame in outside], _MOST_NAMED)
        frames_are = "frame {} is" if len(outside) == 1 else "frames {} are"
        warnings.warn(
            f"{frames_are.format(names)} outside the map, where nothing correlates (frames are counted from 0)",
            stacklevel=level_outside(),
        )


def _over_frames(
    evaluate: Callable[[np.ndarray], Any],
    trajectory: mdtraj.Trajectory,
    frames: np.ndarray,
    progress: Progress | None,
) -> Iterator[Any]:
    """Evaluate frames one by one, from positions in Å; an error of positions says in which frame."""
    for row, frame in enumerate(frames):
        positions = trajectory.xyz[frame].astype(np.float64) * ANGSTROM_PER_NANOMETER
        try:
            value = evaluate(positions)
        except InputError as error:
            if error.argument != "positions":
                raise  # it is no fault of this frame
            raise error.within(f"frame {frame}") from error
        if progress is not None:
            progress(row + 1, len(frames))
        yield value
