"""Energies and forces of the teacher (GFN2-xTB by tblite), kept in a file so that none is computed twice."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import InputError
from ...base.wording import one_line
from .extra import imported
from .ligand import Ligand
from .molecule import PURPOSE
from .potential_file import Teacher

METHOD = "GFN2-xTB"
SOLVENTS = ("water", "acetone", "acetonitrile", "chcl3", "dmso", "ether", "hexane", "methanol", "toluene")
"""Those for which ALPB has parameters with GFN2-xTB, as tblite names them."""
KJ_PER_HARTREE = 2625.4996394799
NM_PER_BOHR = 0.0529177210903
# kJ/mol/nm: 600 kcal/mol/Å. What pulls harder is no geometry that a temperature of 1000 K brings about.
_STRONGEST = 25_000.0

Evaluate = Callable[[np.ndarray], "tuple[float, np.ndarray, np.ndarray]"]


@dataclass(frozen=True)
class Labels:
    """What the teacher says of M geometries of n atoms."""

    # (M,), kJ/mol; not a number where the teacher found no answer, or one that no student should learn
    energies: np.ndarray
    forces: np.ndarray  # (M, n, 3), kJ/mol/nm
    charges: np.ndarray  # (M, n), partial charges in elementary charges

    @property
    def usable(self) -> np.ndarray:
        """Which of the geometries have an answer, shape (M,)."""
        return np.isfinite(self.energies) & (np.abs(self.forces).max((1, 2)) < _STRONGEST)


class Labeller:
    """The teacher of one molecule, with what it has said before.

    `solvent`: one of `SOLVENTS`; vacuum by default. `path`: where labels are kept; nowhere by default. `threads`:
    geometries that are computed side by side: tblite leaves Python to other threads meanwhile. `evaluate`: another
    teacher: from positions (n, 3) in nm to an energy, forces and charges in the units of `Labels`. Raises InputError if
    the solvent is not known, tblite is not installed, or the file holds something else.
    """

    def __init__(
        self,
        ligand: Ligand,
        solvent: str | None = None,
        path: str | os.PathLike[str] | None = None,
        threads: int = 1,
        evaluate: Evaluate | None = None,
    ) -> None:
        if solvent is not None and solvent not in SOLVENTS:
            raise InputError(
                "must be a known solvent",
                argument="solvent",
                found=f'"{solvent}"',
                remedy=f"use one of {', '.join(SOLVENTS)}, or leave it out",
            )
        self.teacher = Teacher(METHOD, solvent, _version() if evaluate is None else "given")
        self._evaluate = evaluate or _gfn2(ligand, solvent)
        self._threads = threads
        self._store = None if path is None else _Store(Path(path))
        about = (ligand.elements, ligand.charge, self.teacher)
        self._prefix = repr(about).encode()
        self.n_computed = 0

    def __call__(self, positions: np.ndarray, tell: Callable[[int], None] | None = None) -> Labels:
        """Return the labels of geometries. `positions` (M, n, 3) in nm."""
        m, n, _ = positions.shape
        energies, forces, charges = np.full(m, np.nan), np.zeros((m, n, 3)), np.zeros((m, n))
        keys = [self._key(each) for each in positions]
        with closing(self._store.opened()) if self._store else _Nothing() as known:
            missing = []
            for k, key in enumerate(keys):
                held = known.read(key, n)
                if held is None:
                    missing.append(k)
                else:
                    energies[k], forces[k], charges[k] = held
            done = m - len(missing)
            for k, found in self._computed(positions, missing):
                energies[k], forces[k], charges[k] = found
                known.write(keys[k], found)
                self.n_computed += 1
                done += 1
                if tell is not None:
                    tell(done)
        return Labels(energies, forces, charges)

    def _computed(
        self, positions: np.ndarray, which: list[int]
    ) -> Iterable[tuple[int, tuple[float, np.ndarray, np.ndarray]]]:
        pool = ThreadPoolExecutor(self._threads)
        try:
            waiting = {pool.submit(self._evaluate, positions[k]): k for k in which}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            # Of an interrupted run: those that have not begun are not waited for.
            pool.shutdown(cancel_futures=True)

    def _key(self, positions: np.ndarray) -> bytes:
        # 1e-9 nm: beyond what a sum in another order may change.
        rounded = np.ascontiguousarray(np.round(positions, 9)) + 0.0
        return hashlib.sha256(self._prefix + rounded.tobytes()).digest()


def _gfn2(ligand: Ligand, solvent: str | None) -> Evaluate:
    """Return what computes GFN2-xTB of a molecule, in one thread each."""
    before = os.environ.get("OMP_NUM_THREADS")
    # Its own copy of OpenMP reads this when it is loaded; geometries side by side keep all cores busy.
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        interface = imported("tblite.interface", PURPOSE)
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    failure = imported("tblite.exceptions", PURPOSE).TBLiteRuntimeError
    numbers = np.array(ligand.elements)

    def evaluate(positions: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        try:
            calculator = interface.Calculator(METHOD, numbers, positions / NM_PER_BOHR, charge=ligand.charge)
            calculator.set("verbosity", 0)
            if solvent is not None:
                calculator.add("alpb-solvation", solvent)
            found = calculator.singlepoint()
        except failure:  # its electrons do not converge, or atoms lie on one another
            return np.nan, np.zeros_like(positions), np.zeros(len(positions))
        return (
            float(found.get("energy")) * KJ_PER_HARTREE,
            -found.get("gradient") * (KJ_PER_HARTREE / NM_PER_BOHR),
            found.get("charges"),
        )

    return evaluate


def _version() -> str:
    try:
        return f"tblite {version('tblite')}"
    except PackageNotFoundError:
        return "tblite"


class _Store:
    """A file of labels; SQLite keeps it whole when a process is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.opened().close()

    def opened(self) -> _Store:
        """Open the file, which is made where there is none."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self._path, isolation_level=None)
            # What is lost with the machine's power is computed again.
            self._file.execute("PRAGMA synchronous = OFF")
            self._file.execute("CREATE TABLE IF NOT EXISTS labels (key BLOB PRIMARY KEY, numbers BLOB)")
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"it cannot be used as a file of labels ({one_line(error)})",
                source=self._path,
                remedy="remove it, or choose another place",
            ) from None
        return self

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, key: bytes, n: int) -> tuple[float, np.ndarray, np.ndarray] | None:
        """Return a label of n atoms, if it is there."""
        row = self._file.execute("SELECT numbers FROM labels WHERE key = ?", (key,)).fetchone()
        if row is None or len(row[0]) != 8 * (1 + 4 * n):
            return None
        numbers = np.frombuffer(row[0])
        return float(numbers[0]), numbers[1 : 1 + 3 * n].reshape(n, 3), numbers[1 + 3 * n :]

    def write(self, key: bytes, label: tuple[float, np.ndarray, np.ndarray]) -> None:
        """Keep a label."""
        numbers = np.concatenate([np.ravel(each) for each in label]).astype(np.float64)
        self._file.execute("INSERT OR REPLACE INTO labels VALUES (?, ?)", (key, numbers.tobytes()))


class _Nothing:
    """Keeps no labels."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def read(self, key: bytes, n: int) -> None:
        """Find nothing."""

    def write(self, key: bytes, label: Any) -> None:
        """Forget a label."""
