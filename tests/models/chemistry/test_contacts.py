from __future__ import annotations

from collections import deque
from pathlib import Path

import gemmi
import numpy as np

from openmm_density.models import Model, read_model
from openmm_density.models.chemistry.contacts import near_contacts


def clashes_one_by_one(model: Model, positions: np.ndarray) -> set[tuple[int, int]]:
    neighbours: dict[int, list[int]] = {}
    for a, b in model.topology.bonds():
        neighbours.setdefault(a.index, []).append(b.index)
        neighbours.setdefault(b.index, []).append(a.index)
    heavy = [atom for atom in model.topology.atoms() if atom.element.symbol != "H"]
    found = set()
    for atom in heavy:
        apart, front = {atom.index: 0}, deque([atom.index])
        while front:
            now = front.popleft()
            for other in neighbours.get(now, []):
                if other not in apart:
                    apart[other] = apart[now] + 1
                    front.append(other)
        for other in heavy:
            if other.index <= atom.index or apart.get(other.index, 99) <= 4:
                continue
            symbols = [each.element.symbol for each in (atom, other)]
            overlap = sum(gemmi.Element(s).vdw_r for s in symbols) - np.linalg.norm(
                positions[atom.index] - positions[other.index]
            )
            if overlap > 0.4 + 0.4 * all(s in ("N", "O", "F", "S") for s in symbols):
                found.add((atom.index, other.index))
    return found


def test_clashes_are_those_of_a_search_one_by_one(small_data: Path) -> None:
    native = read_model(small_data / "emd5925_frag/5925_native.pdb")
    centre = native.positions.mean(axis=0)
    pressed = centre + 0.9 * (native.positions - centre)
    pairs, clash = near_contacts(native.topology, pressed)
    assert {tuple(sorted(pair)) for pair in pairs.tolist()} == clashes_one_by_one(native, pressed)
    assert len(pairs) > 20 and len(clash) == len(pairs)
    distances = np.linalg.norm(pressed[pairs[:, 0]] - pressed[pairs[:, 1]], axis=1)
    assert (distances < clash).all()
