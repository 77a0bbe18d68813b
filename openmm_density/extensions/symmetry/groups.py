"""Point groups and helices as rotations and translations."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from ...base.errors import InputError
from ...base.units import takes_units

_GOLDEN = (1 + np.sqrt(5)) / 2
# Rotations closer than this, by the largest element, are one.
_SAME = 1e-6
_FEWEST, _MOST = 2, 200


def point_group(name: str) -> np.ndarray:
    """Return the rotations of a point group about the origin, the identity first.

    Parameters
    ----------
    name : str
        ``C4``, ``D7``, ``T``, ``O`` or ``I``. The main axis of C and D groups is z, a twofold axis of D groups x;
        the twofold axes of T and I and the fourfold ones of O are x, y and z, with fivefold axes of I in (0, 1, φ) and so on.

    Returns
    -------
    np.ndarray, shape (n, 3, 3)

    Raises
    ------
    InputError
        If there is no such group.
    """
    kind, order = name[:1].upper(), name[1:]
    if kind in "CD" and order.isdecimal() and _FEWEST <= int(order) <= _MOST:
        turns = Rotation.from_rotvec(
            np.outer(np.arange(int(order)) * 2 * np.pi / int(order), [0, 0, 1])
        ).as_matrix()
        return turns if kind == "C" else np.concatenate([turns, turns @ np.diag([1.0, -1.0, -1.0])])
    if name.upper() in _GENERATORS:
        return _closed(
            [Rotation.from_rotvec(np.asarray(vector)).as_matrix() for vector in _GENERATORS[name.upper()]]
        )
    raise InputError(
        "must be a point group",
        argument="symmetry",
        found=name,
        remedy="use C2, C3 …, D2, D3 …, T, O or I",
    )


@takes_units("rise", twist="°")
def helix(rise: float, twist: float, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the operators of a helix about z, from one copy to another.

    Parameters
    ----------
    rise : float
        Å along z from one copy to the next.
    twist : float
        Degrees about z from one copy to the next; negative for a left-handed helix.
    first, last : int
        The numbers of the copies; the unit itself is 0.

    Returns
    -------
    rotations, translations : np.ndarray, shapes (n, 3, 3) and (n, 3)
        Å; the unit first, then the others in their order.

    Raises
    ------
    InputError
        If the rise is 0: copies would turn about one axis, which is what cyclic groups are for.
    """
    if not (np.isfinite(rise) and np.isfinite(twist)) or rise == 0:
        raise InputError(
            "must have a finite rise, other than 0, and a finite twist",
            argument="symmetry",
            found=f"helical:{rise:g},{twist:g}",
            remedy="give helical:RISE,TWIST in Å and degrees, or a cyclic group such as C4",
        )
    steps = np.array([0, *(k for k in range(first, last + 1) if k != 0)])
    turns = Rotation.from_rotvec(np.outer(np.deg2rad(twist) * steps, [0, 0, 1])).as_matrix()
    return turns, np.outer(steps * rise, [0.0, 0.0, 1.0])


def about(
    rotations: np.ndarray, translations: np.ndarray, frame: np.ndarray, centre: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return operators about the origin as about `centre` (3,) in Å: where they meet, or a point on the only axis."""
    turned = frame @ rotations @ frame.T
    return turned, centre + translations @ frame.T - turned @ centre


_AXES_OF_THREE = np.array([1.0, 1.0, 1.0]) / np.sqrt(3) * 2 * np.pi / 3
_GENERATORS = {
    "T": (_AXES_OF_THREE, (0, 0, np.pi)),
    "O": (_AXES_OF_THREE, (0, 0, np.pi / 2)),
    "I": (
        _AXES_OF_THREE,
        (0, 0, np.pi),
        np.array([0.0, 1.0, _GOLDEN]) / np.hypot(1, _GOLDEN) * 2 * np.pi / 5,
    ),
}


def _closed(generators: list[np.ndarray]) -> np.ndarray:
    """Return all products of some rotations, the identity first."""
    found = [np.eye(3)]
    for each in found:
        for generator in generators:
            product = generator @ each
            if all(np.abs(product - known).max() > _SAME for known in found):
                found.append(product)
    return np.array(found)
