"""The file of a ligand's potential: safetensors, which holds numbers and text, and runs nothing when it is read.

Tensors, with n atoms: of the students ``0.…``, ``1.…`` and ``2.…``, named as in `PaiNNNetwork.tensors`; ``charges`` (n,) in
elementary charges, the teacher's; ``positions`` (n, 3) in nm, of the teacher's relaxed geometry. Metadata: see `_KEYS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.atomic_files import atomic_write, check_is_file
from ...base.errors import InputError
from ...base.wording import one_line
from .accuracy import Accuracy
from .extra import imported
from .ligand import Ligand

if TYPE_CHECKING:
    from torch import Tensor

    from ...energies.painn_network import PaiNNNetwork

STUDENTS = 3
_FORMAT = "openmm-density ligand potential"
_FORMAT_VERSION = 1
_KEYS = ("ligand", "teacher", "network", "accuracy", "temperatures", "done", "created_by")
_REMEDY = "give a file that openmm-density distill has written"
# Bytes: three students of 128 features and 6 layers, of 500 atoms, take 20 MB.
_LARGEST = 500_000_000


@dataclass(frozen=True)
class Teacher:
    """Whose energies the students learn.

    Attributes
    ----------
    method : str
        As in ``GFN2-xTB``.
    solvent : str or None
        The implicit solvent (ALPB), None in vacuum.
    version : str
        Of the program, as in ``tblite 0.8.0``.
    """

    method: str
    solvent: str | None
    version: str


@dataclass(frozen=True, eq=False)
class LigandPotential:
    """A committee of students, the molecule they know, and how well they know it.

    Attributes
    ----------
    ligand : Ligand
        Its ``positions`` are the teacher's relaxed geometry.
    charges : ndarray, shape (n,)
        The teacher's partial charges there, in elementary charges.
    students : tuple of mapping of str to Tensor
        What `PaiNNNetwork.tensors` returned of each.
    network : mapping
        `PaiNNNetwork.settings`, the same for all.
    teacher : Teacher
    accuracy : Accuracy
        On held-out geometries.
    temperatures : tuple of float
        K: the lowest and the highest at which geometries were drawn that the students learned.
    done : bool
        False where the students are not as near to their teacher as they should be.
    created_by : str
        Program and version.
    """

    ligand: Ligand
    charges: np.ndarray
    students: tuple[Mapping[str, Tensor], ...] = field(repr=False)
    network: Mapping[str, Any]
    teacher: Teacher
    accuracy: Accuracy
    temperatures: tuple[float, float]
    done: bool
    created_by: str

    def networks(self) -> list[PaiNNNetwork]:
        """Build the students.

        Raises
        ------
        InputError
            If tensors and settings do not go together.
        """
        from ...energies.painn_network import PaiNNNetwork

        return [PaiNNNetwork.from_tensors(tensors, self.network) for tensors in self.students]


def write_potential(path: str | os.PathLike[str], potential: LigandPotential) -> None:
    """Write a potential; the file appears complete, or what was there before stays.

    Raises
    ------
    InputError
        If safetensors is not installed, or the file cannot be written.
    """
    import torch

    serialized = imported("safetensors.torch", "A file of a potential").save
    tensors = {
        "charges": torch.as_tensor(potential.charges, dtype=torch.float64),
        "positions": torch.as_tensor(potential.ligand.positions, dtype=torch.float64),
    }
    for number, student in enumerate(potential.students):
        # A copy of each: safetensors refuses tensors that share memory.
        tensors |= {f"{number}.{name}": each.detach().cpu().clone() for name, each in student.items()}
    ligand = asdict(replace(potential.ligand, positions=None))
    del ligand["positions"]
    metadata = {
        "ligand": ligand,
        "teacher": asdict(potential.teacher),
        "network": dict(potential.network),
        "accuracy": asdict(potential.accuracy),
        "temperatures": list(potential.temperatures),
        "done": potential.done,
        "created_by": potential.created_by,
    }
    texts = {key: json.dumps(value, allow_nan=False) for key, value in metadata.items()}
    with atomic_write(path) as temporary:
        # Its own function that writes files lets nobody but their owner read them.
        said = {"format": _FORMAT, "format_version": str(_FORMAT_VERSION), **texts}
        temporary.write_bytes(serialized(tensors, said))


def read_potential(path: str | os.PathLike[str]) -> LigandPotential:
    """Read a potential.

    Raises
    ------
    InputError
        If it is no such file, is damaged, is of a newer version, or safetensors is not installed.
    """
    texts, tensors = _read(Path(path))
    if texts.get("format") != _FORMAT:
        raise _refused(path, "it is no potential of a ligand")
    if texts.get("format_version") != str(_FORMAT_VERSION):
        raise InputError(
            f"its format must have the version {_FORMAT_VERSION}",
            source=path,
            found=texts.get("format_version"),
            remedy="read it with the version of openmm-density that wrote it, or distil the ligand again",
        )
    missing = [key for key in _KEYS if key not in texts] + [
        name for name in ("charges", "positions") if name not in tensors
    ]
    if missing:
        raise _refused(path, f"it lacks {missing[0]}")
    try:
        potential = _potential({key: json.loads(texts[key]) for key in _KEYS}, tensors)
        _check(potential)
        potential.networks()
    except InputError as error:
        raise _refused(path, f"it is damaged ({one_line(error)})") from None
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise _refused(path, f"what it says of its potential cannot be read ({one_line(error)})") from None
    return potential


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a safetensors file."""
    safetensors = imported("safetensors", "A file of a potential")
    if not path.is_file():
        check_is_file(path)
        raise InputError("there is no such file", source=path, remedy=_REMEDY)
    if path.stat().st_size > _LARGEST:
        raise _refused(path, f"it is larger than {_LARGEST / 1e6:g} MB, as no potential of a ligand is")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            texts = file.metadata() or {}
            return texts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise _refused(path, f"it is no safetensors file, or not a whole one ({one_line(error)})") from None


def _potential(said: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> LigandPotential:
    """Return what the parts of a file describe; whatever is wrong with them raises what Python raises."""
    ligand = dict(said["ligand"])
    students = tuple(
        {name[2:]: each for name, each in tensors.items() if name.startswith(f"{number}.")}
        for number in range(STUDENTS)
    )
    coldest, warmest = (float(each) for each in said["temperatures"])
    return LigandPotential(
        ligand=Ligand(
            elements=tuple(int(each) for each in ligand["elements"]),
            bonds=tuple((int(i), int(j), float(order)) for i, j, order in ligand["bonds"]),
            charge=int(ligand["charge"]),
            smiles=str(ligand["smiles"]),
            positions=tensors["positions"].double().numpy(),
            names=tuple(str(each) for each in ligand["names"]),
        ),
        charges=tensors["charges"].double().numpy(),
        students=students,
        network=dict(said["network"]),
        teacher=Teacher(**said["teacher"]),
        accuracy=Accuracy(
            **{**said["accuracy"], "force_mae_each": tuple(said["accuracy"]["force_mae_each"])}
        ),
        temperatures=(coldest, warmest),
        done=said["done"] is True,
        created_by=str(said["created_by"]),
    )


def _check(potential: LigandPotential) -> None:
    """Refuse parts that do not go together, and numbers that are none."""
    ligand = potential.ligand
    n = len(ligand)
    if potential.charges.shape != (n,) or ligand.positions.shape != (n, 3) or len(ligand.names) not in (0, n):
        raise ValueError(f"charges and positions must be those of {n} atoms")
    if not (np.isfinite(potential.charges).all() and np.isfinite(ligand.positions).all()):
        raise ValueError("charges and positions must be finite")
    if not all(0 <= i < j < n for i, j, _ in ligand.bonds):
        raise ValueError(f"bonds must be between its {n} atoms")
    if list(potential.network.get("elements", ())) != list(ligand.elements):
        raise ValueError("the network must be of the same elements as the ligand")
    for student in potential.students:
        if not all(bool(each.isfinite().all()) for each in student.values()):
            raise ValueError("the students' numbers must be finite")


def _refused(path: str | os.PathLike[str], problem: str) -> InputError:
    return InputError(problem, source=path, remedy=_REMEDY)
