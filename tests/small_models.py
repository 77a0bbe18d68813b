"""Small models that several tests cut out of real ones or write themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from openmm import app

FRAGMENT = "emd5925_frag/5925_native.pdb"


def fragment_lines(data_dir: Path, first: int = 1, last: int = 12) -> list[str]:
    lines = (data_dir / FRAGMENT).read_text().splitlines()
    return [line for line in lines if line.startswith("ATOM") and first <= int(line[22:26]) <= last]


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join([*lines, "END", ""]))
    return path


def hetatm(serial: int, name: str, residue: str, number: int, place: np.ndarray, element: str) -> str:
    x, y, z = place
    return (
        f"HETATM{serial:5d} {name:<4s} {residue:>3s} A{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}"
        f"  1.00 20.00          {element:>2s}"
    )


def bonds_between_residues(topology: app.Topology) -> set[frozenset[str]]:
    return {
        frozenset((f"{a.residue.id}.{a.name}", f"{b.residue.id}.{b.name}"))
        for a, b in topology.bonds()
        if a.residue is not b.residue
    }
