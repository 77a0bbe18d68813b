"""Which resolution the map has: where its spectrum ends, and up to where it agrees with the model."""

from __future__ import annotations

import numpy as np
from scipy import fft

from ...base.errors import InputError, as_argument
from ...maps.density_map import DensityMap
from ..fsc import MODEL_THRESHOLD, model_fsc
from .findings import Finding, MapChecks
from .subject import Subject

CHECK = "resolution"

FACTOR = 1.5
"""Between the resolution that was given and what the map's spectrum says, from which on that is doubted."""
AGREEING = 1.35
"""The same, of where map and model agree: 1.02 at most in real maps, and 1.2 of the true model in simulated ones of 10 Å."""

# A spectrum ends where the power in its shells falls so many times, within this part of the frequency, and stays below. Atoms
# with B = 8 d lose a factor of 1.5 there, maps of noise nothing; the filters of maps 10 times and more.
CLIFF, CLIFF_WIDTH = 10.0, 0.15
# Å: where agreement is looked for at least.
FINE = 8.0
# Coarser shells show the molecule's outline.
COARSEST = 25.0
# A map is cropped around the model to this many voxels at most before it is transformed, its edges smoothed over this part.
MOST_VOXELS = 128**3
EDGE = 0.1
# Å around the model.
_MARGIN = 8.0


def check_detail(subject: Subject) -> MapChecks:
    """Compare the resolution that was given with that of the map.

    Returns ``spectrum_ends`` (Å, the finest detail that the map holds; None where its spectrum goes on up to the
    voxels, or falls slowly, as noise or a mask make it) and ``agrees_to`` (Å, to where the map agrees with the model,
    FSC 0.5, looked for a little beyond what is doubted; None where it does not, or the voxels hold nothing there). A
    map may be filtered more finely than its resolution: that is not doubted.
    """
    given = subject.resolution
    ends, agrees = spectrum_end(_piece(subject)), _agrees_to(subject)
    figures = {"given": given, "spectrum_ends": ends, "agrees_to": agrees}
    problem = None
    if ends is not None and ends > FACTOR * given:
        problem = f"the map holds no detail finer than {ends:.1f} Å, where its spectrum ends"
    elif agrees is not None and agrees < given / AGREEING:
        problem = f"map and model agree to {agrees:.1f} Å or finer (FSC above {MODEL_THRESHOLD:g})"
    if problem is None:
        return MapChecks({CHECK: figures})
    wrong = Finding(
        CHECK,
        f"a resolution of {given:g} Å was given, but {problem}",
        remedy=f"check {as_argument('resolution')}",
    )
    return MapChecks({CHECK: figures}, [wrong])


def spectrum_end(density_map: DensityMap) -> float | None:
    """Return the resolution in Å at which the power of a map falls off a cliff, or None where it does not."""
    frequency, power = _spectrum(density_map)
    if len(power) < 3 or not power.any():
        return None
    # What is zero up to rounding is not to have cliffs of its own.
    level = np.log10(np.maximum(power, 1e-9 * power.max()))
    cliffs = []
    for first in np.flatnonzero(frequency >= 1 / COARSEST):
        after = np.flatnonzero(frequency > frequency[first] * (1 + CLIFF_WIDTH) - 1e-9)
        if not len(after):
            break
        beyond = float(level[after[0] :].max())
        if level[first] - beyond > np.log10(CLIFF):
            cliffs.append((first, after[0], beyond))
    if not cliffs:
        return None
    # The first that there is, where it is steepest; what follows is the slope of the mask or of rounding.
    near = [cliff for cliff in cliffs if frequency[cliff[0]] <= frequency[cliffs[0][0]] * (1 + CLIFF_WIDTH)]
    first, last, beyond = max(near, key=lambda cliff: level[cliff[0]] - cliff[2])
    # Half-way down, so that neither the wide nor the steep side decides.
    middle = 0.5 * (level[first] + beyond)
    falls = first + int(np.argmax(level[first : last + 1] < middle))
    return float(1 / (0.5 * (frequency[max(falls - 1, 0)] + frequency[falls])))


def _agrees_to(subject: Subject) -> float | None:
    """Return where map and model still agree, in Å, or None; on voxels that hold little more than is asked."""
    # Coarser shells are few, and correlate by themselves.
    wanted = min(subject.resolution / (FACTOR * 1.07), FINE)
    try:
        piece = subject.density_map.crop(subject.heavy, _MARGIN)
        if piece.voxel_size.max() > wanted / 2:  # the voxels hold nothing finer
            return None
        every = int(wanted / 3 / piece.voxel_size.max())
        if every > 1:
            piece = _every(piece, every)
        curve = model_fsc(piece, subject.topology, subject.positions, subject.resolution)
    except InputError:  # no atom is in the map, or the piece is too small
        return None
    crossing = curve.crossing()
    return crossing.resolution if np.isfinite(crossing.resolution) else None


def _every(density_map: DensityMap, every: int) -> DensityMap:
    """Return a map of every so many voxels, blurred first as far as that takes, which no shell's correlation depends on."""
    smooth = density_map.gaussian_filter(every * density_map.voxel_size.max())
    return DensityMap(
        smooth.data[::every, ::every, ::every], density_map.matrix * every, density_map.origin, periodic=False
    )


def _piece(subject: Subject) -> DensityMap:
    """Return the map, or what is near the model where it is large."""
    density_map = subject.density_map
    if density_map.data.size <= MOST_VOXELS:
        return density_map
    try:
        piece = density_map.crop(subject.heavy, _MARGIN)
    except InputError:
        piece = density_map
    keep = np.minimum(piece.size, round(MOST_VOXELS ** (1 / 3)))
    first = (piece.size - keep) // 2
    x, y, z = (slice(start, start + n) for start, n in zip(first, keep))
    return DensityMap(piece.data[z, y, x], piece.matrix, piece.origin + piece.matrix @ first, periodic=False)


def _spectrum(density_map: DensityMap) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies in Å⁻¹ and the mean power of the shells there."""
    data, matrix = density_map.data.astype(np.float64), density_map.matrix
    if not density_map.periodic:
        data -= np.median(data)
        for axis, n in enumerate(data.shape):
            window = _window(n)
            data *= window.reshape([-1 if other == axis else 1 for other in range(3)])
    nx, ny, nz = density_map.size.tolist()
    h, k, l_ = fft.rfftfreq(nx), fft.fftfreq(ny)[:, None], fft.fftfreq(nz)[:, None, None]
    s = np.sqrt(sum((h * x + k * y + l_ * z) ** 2 for x, y, z in np.linalg.inv(matrix).T))
    steps = density_map.voxel_size
    width = 1 / (steps * density_map.size).max()
    shell = np.rint(s / width).astype(np.int64)
    n_shells = int(0.5 / steps.max() / width - 0.5 + 1e-6)
    inside = (shell >= 1) & (shell <= n_shells)
    coefficients = np.abs(fft.rfftn(data)[inside]) ** 2
    count = np.bincount(shell[inside], minlength=n_shells + 1)[1:]
    total = np.bincount(shell[inside], coefficients, n_shells + 1)[1:]
    return width * np.arange(1, n_shells + 1), total / np.maximum(count, 1)


def _window(n: int) -> np.ndarray:
    edge = max(int(n * EDGE), 1)
    rise = 0.5 * (1 - np.cos(np.pi * (np.arange(edge) + 0.5) / edge))
    window = np.ones(n)
    window[:edge] = rise
    window[-edge:] = rise[::-1]
    return window
