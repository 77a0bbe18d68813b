"""The file from which the search for an ensemble goes on after any interruption."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...base.atomic_files import replacing
from ...base.errors import InputError
from ...fitting.state_files import PLAIN, DamagedState, read_archive
from .replica_run import ReplicaState

STATE, PREVIOUS = "ensemble.npz", "ensemble.previous.npz"
_FORMAT = 1
_COUNTS = ("stage", "stage_step", "block", "caution")


@dataclass(frozen=True)
class SearchState:
    """Where a search is."""

    leg: int = 0  # The number of the leg that runs, from 0
    running: ReplicaState | None = None  # Its replicas; None where it has not begun
    ended: list[ReplicaState] = field(default_factory=list)  # What the legs before it ended with

    def after_leg(self, state: ReplicaState) -> SearchState:
        """Return where the search is when the running leg has ended."""
        return replace(self, leg=self.leg + 1, running=None, ended=[*self.ended, state])


def save_search(folder: Path, state: SearchState) -> None:
    """Write a state; the one before becomes the previous one, which is read where this cannot be."""
    arrays, plain = {}, {"format": _FORMAT, "leg": state.leg, "replicas": []}
    every = [*state.ended, *([] if state.running is None else [state.running])]
    for number, each in enumerate(every):
        for name in ("positions", "velocities", "weights"):
            arrays[f"{name}_{number}"] = getattr(each, name)
        plain["replicas"].append({name: getattr(each, name) for name in (*_COUNTS, "rows", "ligands")})
    told = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    try:
        with replacing(folder / STATE) as temporary:
            with open(temporary, "wb") as file:
                np.savez(file, **{PLAIN: told}, **arrays)
                file.flush()
                os.fsync(file.fileno())
            if (folder / STATE).exists():
                os.replace(folder / STATE, folder / PREVIOUS)
    except OSError as error:
        raise InputError(
            f"the state cannot be written ({error.strerror or error})",
            source=folder,
            remedy="free some disk space, and resume the fit",
        ) from None


def load_search(folder: Path, n_atoms: int) -> SearchState | None:
    """Return the newest state that can be read; None where there is none."""
    problems = []
    for name in (STATE, PREVIOUS):
        try:
            return _read(folder / name, n_atoms)
        except FileNotFoundError:
            continue
        except DamagedState as error:
            problems.append(f"{name} is damaged ({error})")
    if problems:
        raise InputError(
            f"the search for an ensemble cannot be resumed, because {'; '.join(problems)}",
            source=folder,
            remedy="start the fit again",
        )
    return None


def _read(path: Path, n_atoms: int) -> SearchState:
    arrays, plain = read_archive(path)
    if plain.get("format") != _FORMAT or not isinstance(plain.get("replicas"), list):
        raise DamagedState("it was written by another version")
    leg, told = plain.get("leg"), plain["replicas"]
    if type(leg) is not int or leg < 0 or len(told) not in (leg, leg + 1):
        raise DamagedState("it has other replicas than legs")
    found = [_replicas(arrays, each, number, n_atoms) for number, each in enumerate(told)]
    return SearchState(leg, found[leg] if len(found) > leg else None, found[:leg])


def _replicas(arrays: dict[str, np.ndarray], told: Any, number: int, n_atoms: int) -> ReplicaState:
    names = [f"{name}_{number}" for name in ("positions", "velocities", "weights")]
    if not all(name in arrays for name in names) or not isinstance(told, dict):
        raise DamagedState(f"it lacks {names[0]}")
    positions, velocities, weights = (arrays[name] for name in names)
    shape = (len(weights), n_atoms, 3)
    if positions.shape != shape or velocities.shape != shape or not len(weights):
        raise DamagedState(f"{names[0]} has the shape {positions.shape}, not {shape}")
    if not all(np.isfinite(each).all() for each in (positions, velocities, weights)):
        raise DamagedState(f"{names[0]} has values that are not numbers")
    if (weights < 0).any() or abs(weights.sum() - 1) > 1e-6:
        raise DamagedState(f"{names[2]} do not sum up to 1")
    counts = {name: told.get(name) for name in _COUNTS}
    rows = told.get("rows")
    if not all(type(value) is int and 0 <= value < 2**40 for value in counts.values()):
        raise DamagedState("its counts are not whole numbers")
    ligands = told.get("ligands")
    for each in (rows, ligands):
        if not isinstance(each, list) or not all(isinstance(row, dict) for row in each):
            raise DamagedState("its rows are no list")
    return ReplicaState(positions, velocities, weights, **counts, rows=rows, ligands=ligands)
