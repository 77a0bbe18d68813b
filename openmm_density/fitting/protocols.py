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
from ..whole_files import read_file, write_text
from ..wording import one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HELD = ("planarity", *RESTRAINTS)
"""What a stage may hold: flat groups flat, and all that `openmm_density.restraints` knows as it was."""

PROTOCOLS = ("quick", "standard", "cascade", "gentle")

# fs and K: beyond these no molecule holds together.
LONGEST_TIMESTEP, HIGHEST_TEMPERATURE = 10.0, 5000.0
UPDATE_INTERVAL = 40
"""Strengths and temperatures change every so many steps, and are constant in between."""

STARTS = ("any", "near", "far")
NEAR_CC = 0.4
"""From this correlation (CC mask) on, a model starts near its density: what is wrong with it is local."""

COARSE = 4.5
"""From this resolution on, in Å, a map shows neither the hydrogen bonds of helices and strands, which are held throughout, nor
which rotamer a side chain has."""
ALIKE = 3.5
"""From this resolution on, in Å, side chains are too alike in a map to tell whether a stretch is off by a residue."""

_ALWAYS = ("cis", "chirality", "ramachandran", "planarity")
_HELD = (*_ALWAYS, "ss")
_STAGGERED = "rotamers"
# Rungs of the ladder of blurred maps, in Å added to the map's resolution.
_RUNGS = (4.5, 3.0, 1.5)
_COLD, _ROOM, _HOT = 10.0, 300.0, 600.0


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
    register : bool
        Whether stretches are shifted by a residue where they then fit better, and then side chains turned, before the stage
        begins, see `openmm_density.fitting.rebuilding.Rebuilding`.
    rotamers : bool
        Whether side chains are turned into the rotamers that fit best before the stage begins, see
        `openmm_density.fitting.rebuilding.rotamer_search.RotamerSearch`.
    start : {"any", "near", "far"}
        For which starts the stage is: all, or those near or far from their density, see `Protocol.from_start`.
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
    register: bool = False
    rotamers: bool = False
    start: str = "any"

    def __post_init__(self) -> None:
        where = f'stage "{self.name}"'
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise InputError(f"name of a stage must be a word or two, found {self.name!r}.")
        _check_count(f"{where}: steps", self.steps, least=0)
        for name, least in (("strength", 0.0), ("temperature", 1.0)):
            object.__setattr__(self, name, _pair(f"{where}: {name}", getattr(self, name), least))
        if max(self.temperature) > HIGHEST_TEMPERATURE:
            raise InputError(
                f"{where}: temperature must be at most {HIGHEST_TEMPERATURE:g} K, found {max(self.temperature):g}."
            )
        if (self.strength[0] == 0) != (self.strength[1] == 0):
            raise InputError(
                f"{where}: strength grows geometrically, so that neither or both of its ends are 0; found {list(self.strength)}."
            )
        if self.resolution is not None:
            _check_number(f"{where}: resolution", self.resolution, "Å, such as 8.0")
        object.__setattr__(self, "restraints", checked_restraints(self.restraints, f"{where}: restraints"))
        if self.start not in STARTS:
            raise InputError(f"{where}: start must be one of {', '.join(STARTS)}, found {self.start!r}.")
        if self.pressure is not None:
            _check_number(f"{where}: pressure", self.pressure, "bar, such as 1")
            if self.strength[1] > 0 or "position" not in self.restraints:
                raise InputError(
                    f'{where}: pressure moves the model against the map: set strength to 0, and add "position" to restraints.'
                )
        for name in ("adaptive", "until_converged", "register", "rotamers"):
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
        Full k in kJ/mol per fitted atom; "auto" calibrates it before the first stage with density, on the model warmed to 300 K
        for this.
    timestep : float
        In fs.
    density_interval : int
        The density force acts every so many steps, as an impulse so many times as strong (r-RESPA).
    friction : float
        In 1/ps. What the density sets free in a short stage has to leave within it, or the model runs hot.
    hydrogen_mass : float
        In Da, taken from the atoms that hydrogens are bound to; with 3 Da a step of 4 fs is stable.
    minimize_first, minimize_last : int
        Most iterations of the minimisations without density before, and with it after.
    match_blur : bool
        Whether the atoms' Gaussians become as wide as the map shows them, where that is wider than its resolution says, see
        `openmm_density.fitting.flexible_fit.BLURS`.
    """

    stages: tuple[Stage, ...]
    name: str = "custom"
    strength: float | str = "auto"
    timestep: float = 4.0
    density_interval: int = 1
    friction: float = 5.0
    hydrogen_mass: float = 3.0
    minimize_first: int = 300
    minimize_last: int = 1000
    match_blur: bool = True

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
            if name == "timestep" and self.timestep > LONGEST_TIMESTEP:
                raise InputError(
                    f"timestep must be at most {LONGEST_TIMESTEP:g} fs, found {self.timestep:g}."
                )
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
        if not isinstance(self.match_blur, bool):
            raise InputError(f"match_blur must be true or false, found {self.match_blur!r}.")
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, found {self.steps}.")

    @property
    def steps(self) -> int:
        """The steps of all stages; where some are for near or far starts alone, the more of both."""
        return max(self._timeline()[-1])

    def _timeline(self) -> list[tuple[int, int]]:
        """Give the steps that are done on either side, near and far, after each stage."""
        near = far = 0
        done = []
        for stage in self.stages:
            if stage.start == "any":
                near = far = max(near, far) + stage.steps
            elif stage.start == "near":
                near += stage.steps
            else:
                far += stage.steps
            done.append((near, far))
        return done

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
        stages = []
        for stage, done in zip(self.stages, self._timeline()):
            end = done[1] if stage.start == "far" else done[0]
            begin = end - stage.steps
            length = round(steps * end / self.steps) - round(steps * begin / self.steps)
            stages.append(replace(stage, steps=length))
        return replace(self, stages=tuple(stages))

    def from_start(self, cc: float) -> Protocol:
        """Give the protocol for a model that starts with this correlation (CC mask), in as many steps.

        Stages for starts on the other side of `NEAR_CC` are left out, and what remains is lengthened.

        Raises
        ------
        InputError
            If no stage is for such a start.
        """
        side = "near" if cc >= NEAR_CC else "far"
        stages = [replace(stage, start="any") for stage in self.stages if stage.start in ("any", side)]
        if not stages:
            raise InputError(
                f'no stage is for a model that starts {side} (CC {cc:.2f}): give one with start = "any".'
            )
        if not sum(stage.steps for stage in stages):
            raise InputError(
                f"steps must be at least 1 for a model that starts {side} (CC {cc:.2f}), found 0."
            )
        return replace(self, stages=tuple(stages)).with_steps(self.steps)

    def with_temperature(self, temperature: float) -> Protocol:
        """Give the protocol with its highest temperature at so many K, and where it cools, cooling from there."""
        _check_number("temperature", temperature, "K, such as 300")
        if temperature > HIGHEST_TEMPERATURE:
            raise InputError(f"temperature must be at most {HIGHEST_TEMPERATURE:g} K, found {temperature:g}.")
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
        fields = tomllib.loads(read_file(path).decode("utf-8"))
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
    if not (math.isfinite(resolution) and resolution > 0):
        raise InputError(f"resolution={resolution:g} is not a resolution: give Å, such as 3.5.")
    if name == "standard":
        return Protocol((*_approach(20000, resolution), *_refine(20000, resolution)), name="standard")
    if name == "quick":
        stages = (*_approach(5000, resolution), *_refine(5000, resolution, heated=False))
        return Protocol(stages, name="quick", minimize_last=500)
    if name == "cascade":
        return Protocol((*_ladder(20000, resolution), *_refine(20000, resolution)), name="cascade")
    if name == "gentle":
        return Protocol(_small_corrections(8000), name="gentle")
    raise InputError(
        f'protocol="{name}" is not known: use {", ".join(PROTOCOLS)}, or a file that ends in .toml.'
    )


def _approach(steps: int, resolution: float) -> tuple[Stage, ...]:
    """Down the ladder where the model starts far from its density; else into the density at once.

    The density pulls from the first step: a model that is warmed without it drifts, and does not find all of its way back.
    """
    settle, draw = round(0.05 * steps), round(0.2 * steps)
    held = _near(resolution)
    return (
        *(replace(stage, start="far") for stage in _ladder(steps, resolution)),
        Stage("settle", settle, (0.1, 0.5), (_COLD, _ROOM), restraints=held, start="near"),
        Stage("draw", draw, (0.5, 0.5), restraints=held, start="near"),
    )


def _ladder(steps: int, resolution: float) -> tuple[Stage, ...]:
    """From a blurred map to the map itself, each rung from where the last ended (Singharoy et al. 2016)."""
    settle, *rungs = _shared(0.25 * steps, (0.2, *[0.8 / len(_RUNGS)] * len(_RUNGS)))
    coarsest = resolution + _RUNGS[0]
    return (
        Stage("settle", settle, (0.1, 0.1), (_COLD, _ROOM), coarsest, _HELD),
        *(
            Stage(
                f"{resolution + more:g} Å",
                length,
                (0.1, 0.5) if more == _RUNGS[0] else (0.5, 0.5),
                resolution=resolution + more,
                restraints=_HELD,
            )
            for more, length in zip(_RUNGS, rungs)
        ),
    )


def _refine(steps: int, resolution: float, heated: bool = True) -> tuple[Stage, ...]:
    """Over the barriers between side chains and peptides by heat, then to full strength, and cold."""
    parts = (0.13, 0.13, 0.2, 0.16, 0.11, 0.27) if heated else (0.0, 0.0, 0.0, 0.3, 0.3, 0.4)
    heat, hot, cool, tighten, hold, anneal = _shared(0.75 * steps, parts)
    shown = resolution < COARSE
    stages = []
    if heated:
        stages += [
            Stage("heat", heat, (0.5, 0.5), (_ROOM, _HOT), register=resolution < ALIKE),
            Stage("hot", hot, (0.5, 0.5), (_HOT, _HOT)),
            Stage("cool", cool, (0.5, 0.5), (_HOT, _ROOM)),
        ]
    stages += [
        Stage("tighten", tighten, (0.5, 1.0), register=heated and resolution < ALIKE, rotamers=shown),
        Stage("hold", hold, register=heated and resolution < ALIKE, until_converged=True),
        Stage("anneal", anneal, temperature=(_ROOM, _COLD), rotamers=shown),
    ]
    last = len(stages) - 1
    # Until then side chains may change their rotamers.
    return tuple(
        replace(stage, restraints=checked_restraints((*stage.restraints, _STAGGERED), "restraints"))
        if number == last
        else stage
        for number, each in enumerate(stages)
        for stage in _sided(each, resolution)
    )


def _shared(steps: float, parts: Sequence[float]) -> list[int]:
    """Share steps out."""
    ends = [round(steps * sum(parts[: number + 1])) for number in range(len(parts))]
    return [end - begin for begin, end in zip([0, *ends], ends)]


def _sided(stage: Stage, resolution: float) -> tuple[Stage, ...]:
    """Give a stage with what a map of this resolution leaves to restraints, for near and far starts where these differ."""
    if resolution < COARSE:
        return (stage,)
    far = replace(stage, restraints=_HELD, start="far")
    if max(stage.temperature) > _ROOM:  # what heat would mend does not show either
        return (far,)
    return replace(stage, restraints=_near(resolution), start="near"), far


def _near(resolution: float) -> tuple[str, ...]:
    # A coarse map does not show what is wrong locally in a model that lies in it: its near distances say more.
    return _HELD if resolution < COARSE else (*_HELD, "distance")


def _small_corrections(steps: int) -> tuple[Stage, ...]:
    """Cool, and secondary structure held throughout: for a model that is right but for details."""
    settle, draw, hold = round(0.05 * steps), round(0.2 * steps), round(0.35 * steps)
    cool = (150.0, 150.0)
    return (
        Stage("settle", settle, (0.1, 0.1), (_COLD, 150.0), restraints=_HELD),
        Stage("draw", draw, (0.1, 1.0), cool, restraints=_HELD),
        Stage("hold", hold, (1.0, 1.0), cool, restraints=_HELD, until_converged=True),
        Stage("anneal", steps - settle - draw - hold, (1.0, 1.0), (150.0, _COLD), restraints=_HELD),
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
