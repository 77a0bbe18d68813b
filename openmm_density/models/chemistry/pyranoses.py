"""Sugars with six-membered rings: their conformation by Cremer and Pople's parameters, and their anomer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from openmm import app

from .elements import is_hydrogen
from .pierced_rings import rings_of
from .residue_names import is_standard_polymer
from .topologies import bonded_neighbours, found_once

CHAIR = 27.4
"""Degrees of θ from a pole up to which a ring is closer to a chair than to an envelope (54.7°)."""
_POLES = "4C1", "1C4"
# Conformations in between, every 30° of φ: half chairs and envelopes towards either pole, boats and skew boats at the equator.
_NORTHERN = ["OE", "OH1", "E1", "2H1", "2E", "2H3", "E3", "4H3", "4E", "4H5", "E5", "OH5"]
_EQUATORIAL = ["3,OB", "3S1", "B1,4", "5S1", "2,5B", "2SO", "B3,O", "1S3", "1,4B", "1S5", "B2,5", "OS2"]
_SOUTHERN = ["3E", "3H4", "E4", "5H4", "5E", "5HO", "EO", "1HO", "1E", "1H2", "E2", "3H2"]
_TROPICS = (68.0, 112.0)  # degrees of θ, about halfway between boats (90) and half chairs (51 and 129)
_HETERO = frozenset({"N", "O", "S"})


@dataclass(frozen=True)
class Pyranoses:
    """The pyranoses of a model; -1 for missing atoms."""

    residues: np.ndarray  # int (S,), indices of the residues
    # int (S, 6): the oxygen, the anomeric carbon, and on around the ring, in Privateer's order
    rings: np.ndarray
    anomeric: np.ndarray  # int (S,), the other O, N or S at the anomeric carbon
    arms: np.ndarray  # int (S,), the exocyclic carbon at the ring's last carbon
    locants: tuple[str, ...]  # The numbers of the first ring carbon, as in "1"; "2" in sialic acids
    is_aldose: np.ndarray  # bool (S,), whether the anomeric carbon has no exocyclic carbon

    def puckers(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return Q in Å, φ and θ in degrees, (S,) each (D. Cremer and J. A. Pople, JACS 97, 1354 (1975)); θ of ⁴C₁ is 0."""
        around = positions[self.rings] - positions[self.rings].mean(axis=1, keepdims=True)
        turns = np.exp(2j * np.pi * np.arange(6) / 6)
        plane = np.einsum("sjx,j->sx", around, turns)
        normal = np.cross(plane.imag, plane.real)
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
        z = np.einsum("sjx,sx->sj", around, normal)
        second = z @ turns**-2 / np.sqrt(3.0)
        third = z @ np.array([1, -1] * 3) / np.sqrt(6.0)
        q = np.hypot(np.abs(second), third)
        phi = np.degrees(np.angle(second)) % 360.0
        return q, phi, np.degrees(np.arctan2(np.abs(second), third))

    def conformations(self, positions: np.ndarray) -> list[str]:
        """Return the nearest of the 38 conformations of each sugar, as in ``4C1``, with its locants."""
        _, phi, theta = self.puckers(positions)
        found = []
        for place, angle, locant in zip(np.rint(phi / 30.0).astype(int) % 12, theta, self.locants):
            if min(angle, 180.0 - angle) < CHAIR:
                name = _POLES[int(angle > 90.0)]
            elif angle < _TROPICS[0]:
                name = _NORTHERN[place]
            else:
                name = (_SOUTHERN if angle > _TROPICS[1] else _EQUATORIAL)[place]
            found.append("".join(str(int(c) + int(locant) - 1) if c.isdigit() else c for c in name))
        return found

    def unusual(self, positions: np.ndarray) -> np.ndarray:
        """Return which are not the chair with the exocyclic carbon equatorial, bool (S,).

        That is ⁴C₁ of D-sugars, ¹C₄ of L-sugars and ²C₅ of sialic acids; without such a carbon, as in xylose, any chair is usual.
        """
        _, _, theta = self.puckers(positions)
        hand = self._hand(positions, self.rings[:, 5], self.rings[:, [4, 0]], self.arms)
        is_chair = np.minimum(theta, 180.0 - theta) < CHAIR
        return ~is_chair | (hand * (theta - 90.0) < 0)

    def anomers(self, positions: np.ndarray) -> np.ndarray:
        """Return 1 for β and -1 for α aldoses (whether both substituents are on one side of the ring), 0 where one is missing.

        For ketoses the geometry is the same, with other names.
        """
        first = self._hand(positions, self.rings[:, 1], self.rings[:, [0, 2]], self.anomeric)
        return first * self._hand(positions, self.rings[:, 5], self.rings[:, [4, 0]], self.arms)

    def _hand(
        self, positions: np.ndarray, centres: np.ndarray, sides: np.ndarray, ends: np.ndarray
    ) -> np.ndarray:
        """Return on which side of the ring a substituent is: 1 or -1, and 0 without one."""
        before, after, end = (positions[k] - positions[centres] for k in (*sides.T, ends))
        volume = np.einsum("ij,ij->i", np.cross(after, before), end)
        return np.where(ends >= 0, np.sign(volume), 0.0)


@found_once
def find_pyranoses(topology: app.Topology) -> Pyranoses:
    """Return the sugars of a model: rings of five carbons and an oxygen, of which at least two carbons carry O, N or S."""
    atoms, rows = list(topology.atoms()), []
    symbols = ["" if atom.element is None else atom.element.symbol for atom in atoms]
    rings = [ring for ring in rings_of(topology) if sorted(symbols[k] for k in ring) == [*"CCCCCO"]]
    around = bonded_neighbours(topology) if rings else []
    for ring in rings:
        residue = atoms[ring[0]].residue
        if is_standard_polymer(residue.name):
            continue
        beside = {k: [n for n in around[k] if n not in ring and not is_hydrogen(atoms[n])] for k in ring}
        bearing = [k for k in ring if symbols[k] == "C" and any(symbols[n] in _HETERO for n in beside[k])]
        saturated = all(len(around[k]) - len(beside[k]) >= 2 and len(beside[k]) <= 2 for k in ring)
        if len(bearing) < 2 or not saturated:
            continue
        start = next(n for n, k in enumerate(ring) if symbols[k] == "O")
        ordered = [*ring[start:], *ring[:start]]
        # The anomeric carbon carries another heteroatom; where that is missing, it is the carbon with the lower number.
        first, last = (
            (k not in bearing, int("0" + "".join(filter(str.isdigit, atoms[k].name))))
            for k in (ordered[1], ordered[5])
        )
        if last < first:
            ordered = [ordered[0], *ordered[:0:-1]]
        carbons = [[n for n in beside[ordered[k]] if symbols[n] == "C"] for k in (1, 5)]
        hetero = [n for n in beside[ordered[1]] if symbols[n] in _HETERO]
        locant = "".join(filter(str.isdigit, atoms[ordered[1]].name)) or "1"
        ends = hetero[0] if hetero else -1, carbons[1][0] if carbons[1] else -1
        rows.append((residue.index, ordered, *ends, locant, not carbons[0]))
    columns = list(zip(*sorted(rows))) if rows else [()] * 6
    residues, rings, anomeric, arms, _, is_aldose = (np.array(each, dtype=np.int64) for each in columns)
    return Pyranoses(
        residues, rings.reshape(-1, 6), anomeric, arms, tuple(columns[4]), is_aldose.astype(bool)
    )


def sugar_links(topology: app.Topology) -> np.ndarray:
    """Return the atoms of φ and ψ of the links from pyranoses to other residues, int (L, 4).

    φ: the ring oxygen, the anomeric carbon, the linking atom, and the next one; ψ starts at the anomeric carbon.
    """
    sugars, found = find_pyranoses(topology), []
    if not len(sugars.rings):
        return np.empty((0, 4), dtype=np.int64)
    atoms, around = list(topology.atoms()), bonded_neighbours(topology)
    for ring, joining in zip(sugars.rings.tolist(), sugars.anomeric.tolist()):
        beyond = [n for n in around[joining] if joining >= 0 and n != ring[1] and not is_hydrogen(atoms[n])]
        if not beyond or atoms[beyond[0]].residue is atoms[ring[0]].residue:
            continue
        found.append((ring[0], ring[1], joining, min(beyond)))
        last = [n for n in around[min(beyond)] if n != joining and not is_hydrogen(atoms[n])]
        if last:
            found.append((ring[1], joining, min(beyond), min(last)))
    return np.array(found, dtype=np.int64).reshape(-1, 4)
