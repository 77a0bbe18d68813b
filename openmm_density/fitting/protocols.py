"""How a fit runs: a sequence of stages, built in or from a TOML file."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..restraints import RESTRAINTS
from ..whole_files import write_text
from ..wording import one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HELD = ("planarity", *RESTRAINTS)
"""What a stage may hold: flat groups flat, and all that `openmm_density.restraints` knows as it was."""

PROTOCOLS = ("quick", "standard", "cascade", "gentle")

UPDATE_INTERVAL = 40
"""Strengths and temperatures change every so many steps, and are constant in between."""

_ALWAYS = ("cis", "chirality", "planarity")
# Rungs of the ladder of blurred maps, in Å added to the map's resolution.
_RUNGS = (4.5, 3.0, 1.5)


@dataclass(frozen=True)
class Stage:
    """A part of a fit.

    Attributes
    ----------
    name : str
        As the log and the display call it.
    steps : int
        Of molecular dynamics; the most, where it ends once converged.
    strength : tuple of float
        k at its begin and end, as parts of the protocol's full strength, growing geometrically; 0 is no density.
    temperature : tuple of float
        In K, at its begin and end, changing linearly.
    resolution : float, optional
        In Å: the map is blurred to it. By default it is taken as it is.
    restraints : tuple of str
        Which of `HELD` hold.
    pressure : float, optional
        In bar: the box adapts to it. Only in water, and for a stage without density and with the restraint "position", as the box
        moves what is in it against the map.
    adaptive : bool
        Whether the strength also follows the similarity, see `openmm_density.fitting.strength.AdaptiveStrength`.
    until_converged : bool
        Whether the stage ends early once similarity and model no longer change, see `openmm_density.fitting.convergence.Plateau`.
    """

    name: str
    steps: int
    strength: tuple[float, float] = (1.0, 1.0)
    temperature: tuple[float, float] = (300.0, 300.0)
    resolution: float | None = None
    restraints: tuple[str, ...] = _ALWAYS
    pressure: float | None = None
    adaptive: bool = False
    until_converged: bool = False

    def __post_init__(self) -> None:
        where = f'stage "{self.name}"'
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise InputError(f"name of a stage must be a word or two, found {self.name!r}.")
        _check_count(f"{where}: steps", self.steps, least=0)
        for name, least in (("strength", 0.0), ("temperature", 1.0)):
            object.__setattr__(self, name, _pair(f"{where}: {name}", getattr(self, name), least))
        if (self.strength[0] == 0) != (self.strength[1] == 0):
            raise InputError(
                f"{where}: strength grows geometrically, so that neither or both of its ends are 0; found {list(self.strength)}."
            )
        if self.resolution is not None:
            _check_number(f"{where}: resolution", self.resolution, "Å, such as 8.0")
        object.__setattr__(self, "restraints", checked_restraints(self.restraints, f"{where}: restraints"))
        if self.pressure is not None:
            _check_number(f"{where}: pressure", self.pressure, "bar, such as 1")
            if self.strength[1] > 0 or "position" not in self.restraints:
                raise InputError(
                    f'{where}: pressure moves the model against the map: set strength to 0, and add "position" to restraints.'
                )
        for name in ("adaptive", "until_converged"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{where}: {name} must be true or false, found {getattr(self, name)!r}.")

    def strength_at(self, part: float) -> float:
        """Give k, as a part of the full strength, when that part (0…1) of the stage is done."""
        begin, end = self.strength
        return 0.0 if begin == 0 else begin * (end / begin) ** part

    def temperature_at(self, part: float) -> float:
        """Give the temperature in K when that part (0…1) of the stage is done."""
        begin, end = self.temperature
        return begin + part * (end - begin)


@dataclass(frozen=True)
class Protocol:
    """How a fit runs: minimise, the stages, minimise.

    Attributes
    ----------
    stages : tuple of Stage
    name : str
    strength : float or "auto"
        Full k in kJ/mol per fitted atom; "auto" calibrates it on the thermalised model, before the first stage with density.
    timestep : float
        In fs.
    density_interval : int
        The density force acts every so many steps, as an impulse so many times as strong (r-RESPA).
    friction : float
        In 1/ps.
    hydrogen_mass : float
        In Da, taken from the atoms that hydrogens are bound to; with 3 Da a step of 4 fs is stable.
    minimize_first, minimize_last : int
        Most iterations of the minimisations without density before, and with it after.
    """

    stages: tuple[Stage, ...]
    name: str = "custom"
    strength: float | str = "auto"
    timestep: float = 4.0
    density_interval: int = 1
    friction: float = 1.0
    hydrogen_mass: float = 3.0
    minimize_first: int = 300
    minimize_last: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.stages or not all(isinstance(stage, Stage) for stage in self.stages):
            raise InputError("stages must hold at least one Stage.")
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise InputError(f"name of a protocol must be a word or two, found {self.name!r}.")
        if self.strength != "auto":
            if not _is_number(self.strength) or not self.strength >= 0 or math.isinf(self.strength):
                raise InputError(
                    f'strength must be "auto" or 0 or more kJ/mol per fitted atom, found {self.strength!r}.'
                )
            object.__setattr__(self, "strength", float(self.strength))
        for name, example in (
            ("timestep", "fs, such as 4"),
            ("friction", "1/ps, such as 1"),
            ("hydrogen_mass", "Da, such as 3"),
        ):
            _check_number(name, getattr(self, name), example)
            object.__setattr__(self, name, float(getattr(self, name)))
        _check_count("density_interval", self.density_interval, least=1)
        if UPDATE_INTERVAL % self.density_interval:
            raise InputError(
                f"density_interval must divide the {UPDATE_INTERVAL} steps between updates of the strength, found "
                f"{self.density_interval}: give 1, 2 or 4."
            )
        # Stages end where the density force has acted.
        whole = [-(-stage.steps // self.density_interval) * self.density_interval for stage in self.stages]
        stages = [
            stage if stage.steps == steps else replace(stage, steps=steps)
            for stage, steps in zip(self.stages, whole)
        ]
        object.__setattr__(self, "stages", tuple(stages))
        for name in ("minimize_first", "minimize_last"):
            _check_count(name, getattr(self, name), least=0)
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, found {self.steps}.")

    @property
    def steps(self) -> int:
        """The steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def in_water(self, steps: int = 2500) -> Protocol:
        """Give the protocol with an equilibration of the water before it, at 1 bar and with the model held in place."""
        if any(stage.pressure is not None for stage in self.stages):
            return self
        equilibrate = Stage(
            "equilibrate",
            steps,
            strength=(0.0, 0.0),
            temperature=(self.stages[0].temperature[0],) * 2,
            restraints=(*_ALWAYS, "position"),
            pressure=1.0,
        )
        return replace(self, stages=(equilibrate, *self.stages))

    def with_steps(self, steps: int) -> Protocol:
        """Give the protocol with its stages lengthened or shortened alike to so many steps in all."""
        _check_count("steps", steps, least=1)
        ends, done = [], 0
        for stage in self.stages:
            done += stage.steps
            ends.append(round(steps * done / self.steps))
        lengths = [end - begin for begin, end in zip([0, *ends], ends)]
        stages = [replace(stage, steps=length) for stage, length in zip(self.stages, lengths)]
        return replace(self, stages=tuple(stages))

    def with_temperature(self, temperature: float) -> Protocol:
        """Give the protocol with its highest temperature at so many K, and where it cools, cooling from there."""
        _check_number("temperature", temperature, "K, such as 300")
        highest = max(max(stage.temperature) for stage in self.stages)

        def changed(kelvin: float) -> float:
            return float(temperature) if kelvin == highest else min(kelvin, float(temperature))

        stages = [
            replace(stage, temperature=(changed(stage.temperature[0]), changed(stage.temperature[1])))
            for stage in self.stages
        ]
        return replace(self, stages=tuple(stages))

    def with_restraints(self, restraints: Sequence[str]) -> Protocol:
        """Give the protocol holding only these: each where the protocol holds it, or throughout where it does not."""
        wanted = checked_restraints(restraints, "restraints")
        known = {name for stage in self.stages for name in stage.restraints}
        stages = [
            replace(
                stage,
                restraints=tuple(name for name in wanted if name in stage.restraints or name not in known),
            )
            for stage in self.stages
        ]
        return replace(self, stages=tuple(stages))

    def as_dict(self) -> dict[str, Any]:
        """Give plain lists, dicts, numbers and strings, as a TOML file holds them; what is None is left out."""
        plain = dataclasses.asdict(self)
        stages = plain.pop("stages")
        plain["stage"] = [
            {name: list(value) if isinstance(value, tuple) else value for name, value in stage.items()}
            for stage in stages
        ]
        for stage in plain["stage"]:
            for name in [name for name, value in stage.items() if value is None]:
                del stage[name]
        return plain

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the protocol as a TOML file, which `read_protocol` reads."""
        plain = self.as_dict()
        stages = plain.pop("stage")
        lines = [f"{name} = {_toml(value)}" for name, value in plain.items()]
        for stage in stages:
            lines += ["", "[[stage]]", *(f"{name} = {_toml(value)}" for name, value in stage.items())]
        write_text(path, "\n".join([*lines, ""]))


def read_protocol(path: str | os.PathLike[str]) -> Protocol:
    """Read a protocol from a TOML file: the fields of `Protocol`, and a table ``[[stage]]`` with those of `Stage` for each stage.

    Raises
    ------
    InputError
        If it cannot be read, or holds what is not known or not possible; the message names the file.
    """
    try:
        fields = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}: give a protocol file (TOML).") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: it is not a TOML file ({one_line(error)}).") from None
    tables = fields.pop("stage", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables) or not tables:
        raise InputError(f"{path}: it has no stage: add one or more tables [[stage]].")
    try:
        _check_known(fields, Protocol, leaving="stages", what="the protocol")
        stages = []
        for number, table in enumerate(tables, start=1):
            _check_known(table, Stage, what=f"stage {number}")
            stages.append(Stage(**{"name": f"stage {number}", **table}))
        return Protocol(**{"name": Path(path).stem, **fields, "stages": tuple(stages)})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except TypeError as error:  # a stage without steps
        raise InputError(f"{path}: {one_line(error).split('__init__() ')[-1]}.") from None


def find_protocol(name: str, resolution: float) -> Protocol:
    """Give a built-in protocol by its name, or read the TOML file of that path.

    Parameters
    ----------
    name : str
        One of `PROTOCOLS`, or a path that ends in .toml.
    resolution : float
        Of the map in Å, from which ``cascade`` makes its ladder.
    """
    if str(name).endswith(".toml"):
        return read_protocol(name)
    if name == "standard":
        return Protocol(_straight(20000), name="standard")
    if name == "quick":
        return Protocol(_straight(5000), name="quick", minimize_last=500)
    if name == "cascade":
        return Protocol(_ladder(20000, resolution), name="cascade")
    if name == "gentle":
        return Protocol(_small_corrections(8000), name="gentle")
    raise InputError(
        f'protocol="{name}" is not known: use {", ".join(PROTOCOLS)}, or a file that ends in .toml.'
    )


def _straight(steps: int) -> tuple[Stage, ...]:
    """From weak to strong; helices and strands held until half the strength, so that domains move as wholes."""
    warm_up, draw, tighten, hold = (round(part * steps) for part in (0.02, 0.266, 0.114, 0.25))
    return (
        Stage("warm up", warm_up, strength=(0.0, 0.0), restraints=(*_ALWAYS, "ss")),
        Stage("draw", draw, strength=(0.1, 0.5), restraints=(*_ALWAYS, "ss")),
        Stage("tighten", tighten, strength=(0.5, 1.0)),
        Stage("hold", hold, until_converged=True),
        Stage("anneal", steps - warm_up - draw - tighten - hold, temperature=(300.0, 10.0)),
    )


def _ladder(steps: int, resolution: float) -> tuple[Stage, ...]:
    """From a blurred map to the map itself, each rung from where the last ended (Singharoy et al. 2016)."""
    warm_up, rung, hold = round(0.02 * steps), round(0.11 * steps), round(0.25 * steps)
    rungs = [
        Stage(
            f"{resolution + more:g} Å",
            rung,
            strength=(0.1, 0.5) if number == 0 else (0.5, 0.5),
            resolution=resolution + more,
            restraints=(*_ALWAYS, "ss"),
        )
        for number, more in enumerate(_RUNGS)
    ]
    rest = steps - warm_up - len(_RUNGS) * rung - hold
    return (
        Stage("warm up", warm_up, strength=(0.0, 0.0), restraints=(*_ALWAYS, "ss")),
        *rungs,
        Stage("hold", hold, strength=(0.5, 1.0)),
        Stage("anneal", rest, temperature=(300.0, 10.0)),
    )


def _small_corrections(steps: int) -> tuple[Stage, ...]:
    """Cool, and secondary structure held throughout: for a model that is right but for details."""
    warm_up, draw, hold = round(0.05 * steps), round(0.2 * steps), round(0.35 * steps)
    every = (*_ALWAYS, "ss")
    return (
        Stage("warm up", warm_up, (0.0, 0.0), (150.0, 150.0), restraints=every),
        Stage("draw", draw, (0.1, 1.0), (150.0, 150.0), restraints=every),
        Stage("hold", hold, (1.0, 1.0), (150.0, 150.0), restraints=every, until_converged=True),
        Stage("anneal", steps - warm_up - draw - hold, (1.0, 1.0), (150.0, 10.0), restraints=every),
    )


def checked_restraints(names: Any, where: str) -> tuple[str, ...]:
    """Give restraint names in the order of `HELD`; refuse one that is not known."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where} must be a list of names, found {names!r}.")
    unknown = [name for name in names if name not in HELD]
    if unknown:
        raise InputError(f'{where}: "{unknown[0]}" is not known: use {", ".join(HELD)}.')
    return tuple(name for name in HELD if name in names)


def _check_known(table: Mapping[str, Any], kind: type, what: str, leaving: str = "") -> None:
    known = [field.name for field in dataclasses.fields(kind) if field.name != leaving]
    for name in table:
        if name not in known:
            raise InputError(f'{what} has "{name}", which is not known: use {", ".join(known)}.')


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, found {value!r}.")


def _check_number(name: str, value: Any, example: str) -> None:
    if not _is_number(value) or not 0 < value < math.inf:
        raise InputError(f"{name} must be positive, found {value!r}: give {example}.")


def _pair(name: str, value: Any, least: float) -> tuple[float, float]:
    """Give begin and end; one number stands for both."""
    pair = (value, value) if _is_number(value) else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(map(_is_number, pair)):
        raise InputError(f"{name} must be a number, or two for its begin and end, found {value!r}.")
    if not all(least <= one < math.inf for one in pair):
        raise InputError(f"{name} must be {least:g} or more, found {value!r}.")
    return float(pair[0]), float(pair[1])


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
