"""Which forces of a System hold which parameter of its Contexts, and whether two share one that should not."""

from __future__ import annotations

import itertools
import warnings
import weakref
from typing import Any

import openmm

from ..base.errors import level_outside
from ..base.plugins import openmmtorch
from .native_force import NativeForce


def as_made(force: openmm.Force) -> openmm.Force:
    """Return a force with the methods of its own class, where a System hands it out as a plain Force."""
    if type(force) is openmm.Force:
        if NativeForce.isinstance(force):
            return NativeForce.cast(force)
        for backend in ("TorchForce", "PythonTorchForce"):
            kind = getattr(openmmtorch(), backend, None)
            if kind is not None and kind.isinstance(force):
                return kind.cast(force)
    return force


def parameter_names(force: openmm.Force) -> list[str]:
    """Return the names of a force's Context parameters; of one from a System those of `as_made`."""
    if hasattr(force, "getGlobalParameters"):
        return list(force.getGlobalParameters())
    if not hasattr(force, "getNumGlobalParameters"):
        return []
    return [force.getGlobalParameterName(i) for i in range(force.getNumGlobalParameters())]


def warn_of_shared(system: openmm.System, parameter_name: str, to_come: int = 0) -> None:
    """Warn where a density's parameter sets more than one force of a System."""
    holders = [
        force for force in map(as_made, system.getForces()) if parameter_name in parameter_names(force)
    ]
    if len(holders) + to_come > 1:
        names = sorted({force.getName() for force in holders})
        warnings.warn(
            f"the System has {len(holders)} force{'s' if len(holders) > 1 else ''} ({', '.join(names)}) with the parameter "
            f'"{parameter_name}"{", and this would be one more" if to_come else ""}: whatever sets it sets all of them, so give '
            "one DensityFit another parameter_name",
            stacklevel=level_outside(),
        )


# Of each topology, by the name of the parameter, the owners that have made a force.
_made: dict[int, dict[str, list[tuple[int, Any]]]] = {}
_numbers = itertools.count()


class ParameterUse:
    """What one owner of a parameter pulls, among all that were made for a topology in this process.

    `topology` as the user gave it: forces of one System have one. `pulls`: what it pulls into what. Owners that agree
    in it are one made anew, for another System.
    """

    def __init__(self, topology: Any, parameter_name: str, pulls: Any) -> None:
        self._topology, self._parameter_name, self._pulls = weakref.ref(topology), parameter_name, pulls
        self._number = next(_numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._topology(), self._parameter_name, self._pulls)

    def note(self) -> None:
        """Note that a force was made; warn where another owner has made one that would share its parameter."""
        topology = self._topology()
        if topology is None:
            return
        if id(topology) not in _made:
            weakref.finalize(topology, _made.pop, id(topology), None)
        made = _made.setdefault(id(topology), {}).setdefault(self._parameter_name, [])
        if any(number == self._number for number, _ in made):
            return
        if any(pulls != self._pulls for _, pulls in made):
            warnings.warn(
                f'another DensityFit of this topology has made a force with the parameter "{self._parameter_name}" too: in one '
                "System the two would share one strength, so give one of them another parameter_name",
                stacklevel=level_outside(),
            )
        made.append((self._number, self._pulls))
