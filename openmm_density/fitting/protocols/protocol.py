"""How a fit runs: a sequence of stages, between two minimisations."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.atomic_files import write_text
from ...base.errors import InputError
from ...base.units import takes_units
from ...restraints.names import DEFAULT_STAGE_RESTRAINTS
from .numbers import answered_by_extension, check_choice, check_count, check_flag, check_number, is_number
from .stage import HIGHEST_TEMPERATURE, Stage, checked_restraints, too_hot

# fs: beyond it no molecule holds together.
LONGEST_TIMESTEP = 10.0
UPDATE_INTERVAL = 40
"""Strengths and temperatures change every so many steps, and are constant in between."""

SEARCHES = ("off", "auto", "full")
B_FACTORS = ("off", "auto", "atom", "residue", "group")
OCCUPANCIES = ("ligands", "waters", "side-chains")
CONFORMERS = ("major", "auto", "both")

FINISH = "finish"
"""The stage at the final strength that protocols end with."""
FINISH_SHARE = 0.1
"""Its part of the steps."""
# K, where it ends.
FINISH_COLD = 10.0

NEAR_CC = 0.4
"""From this correlation (CC mask) on, a model starts near its density: what is wrong with it is local."""


@takes_units(
    strength="kJ/mol",
    final_strength="kJ/mol",
    final_strength_limit="kJ/mol",
    timestep="fs",
    friction="1/ps",
    hydrogen_mass="Da",
)
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
    final_strength : float, "auto" or None
        k in kJ/mol per fitted atom in the stages that are `final`, and in the last minimisation; "auto" finds it before the first
        of these, see `openmm_density.fitting.final_strength`. None, the default, is "auto" where ``strength`` is, and else the
        same as ``strength``.
    final_strength_limit : float, optional
        The largest that "auto" finds, where half maps set a limit.
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
        `openmm_density.fitting.widths.BLURS`.
    replicas : int
        Of stages that let replicas exchange.
    exchange_interval : int
        Steps between their attempts.
    finish : bool
        Whether a fit adds a final stage where there is none, see `finishing`.
    b_factors : {"off", "auto", "atom", "residue", "group"}
        Whether B factors are refined in the end, and what has one of its own; see
        `openmm_density.energies.atomic_parameters.BFactorRefinement`. With "off" the model keeps those of its file.
    occupancies : str
        Whose occupancies are refined in the end: "ligands", "waters", "side-chains" or several, separated by commas; or "off".
    conformers : {"major", "auto", "both"}
        Whether alternate conformers are fitted in the end: not, where the map tells them
        apart, or all that can be. Those that are not follow the fitted one rigidly.
    search : {"auto", "off", "full"}
        Whether the searches that stages ask for take at most about as long as the rest of the fit, are not made, or take as
        long as they need.
    """

    stages: tuple[Stage, ...]
    name: str = "custom"
    strength: float | str = "auto"
    final_strength: float | str | None = None
    final_strength_limit: float | None = None
    timestep: float = 4.0
    density_interval: int = 1
    friction: float = 5.0
    hydrogen_mass: float = 3.0
    minimize_first: int = 300
    minimize_last: int = 1000
    match_blur: bool = True
    search: str = answered_by_extension("auto")
    replicas: int = answered_by_extension(8)
    exchange_interval: int = answered_by_extension(200)
    finish: bool = True
    b_factors: str = answered_by_extension("off")
    occupancies: str = answered_by_extension("off")
    conformers: str = answered_by_extension("major")

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.stages or not all(isinstance(stage, Stage) for stage in self.stages):
            raise InputError(
                "must hold at least one Stage", argument="stages", remedy="give a sequence of Stage"
            )
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise InputError(
                "of a protocol must be a word or two",
                argument="name",
                found=repr(self.name),
                remedy="give printable text",
            )
        for name in ("strength", "final_strength", "final_strength_limit"):
            self._check_strength(name)
        self._check_intervals()
        for name in ("timestep", "friction", "hydrogen_mass"):
            object.__setattr__(self, name, float(getattr(self, name)))
        # Stages end where the density force has acted.
        whole = [-(-stage.steps // self.density_interval) * self.density_interval for stage in self.stages]
        stages = [
            stage if stage.steps == steps else replace(stage, steps=steps)
            for stage, steps in zip(self.stages, whole)
        ]
        object.__setattr__(self, "stages", tuple(stages))
        for name in ("minimize_first", "minimize_last"):
            check_count(name, getattr(self, name), least=0)
        check_flag("match_blur", self.match_blur)
        check_flag("finish", self.finish)
        check_count("replicas", self.replicas, least=2)
        check_count("exchange_interval", self.exchange_interval, least=1)
        if self.density_interval > 1 and any(stage.exchange for stage in self.stages):
            raise InputError(
                "must be 1 where replicas exchange",
                argument="density_interval",
                found=self.density_interval,
                remedy="leave it out",
            )
        for name, choices in (
            ("search", SEARCHES),
            ("b_factors", B_FACTORS),
            ("conformers", CONFORMERS),
        ):
            check_choice(name, getattr(self, name), choices)
        kinds = str(self.occupancies).split(",")
        for kind in kinds:
            check_choice(
                "occupancies", kind.strip(), OCCUPANCIES if len(kinds) > 1 else ("off", *OCCUPANCIES)
            )
        self._check_final_stages()
        if self.steps < 1:
            raise InputError(
                "must be at least 1 in all stages",
                argument="steps",
                found=self.steps,
                remedy="give the steps of dynamics",
            )

    def _check_strength(self, name: str) -> None:
        """Refuse what is no strength, and make numbers of the others floats."""
        value = getattr(self, name)
        if value is None and name != "strength":
            return
        is_limit = name == "final_strength_limit"
        if value == "auto" and not is_limit:
            return
        if not is_number(value) or not value >= 0 or math.isinf(value):
            raise InputError(
                ("must be " if is_limit else 'must be "auto" or ') + "0 or more kJ/mol per fitted atom",
                argument=name,
                found=repr(value),
                remedy="give " + ("a" if is_limit else '"auto", or a') + " number such as 10",
            )
        object.__setattr__(self, name, float(value))

    def _check_final_stages(self) -> None:
        """Refuse stages at the final strength that others follow, or without density."""
        later = [stage.final for stage in self.stages]
        if later != sorted(later):
            name = self.stages[later.index(True)].name
            raise InputError(
                "is for the last stages, and another follows",
                argument="final",
                source=f'stage "{name}"',
                remedy="leave it out there, or put the stage last",
            )
        if any(stage.final and stage.strength[1] == 0 for stage in self.stages):
            raise InputError(
                "is for stages with density", argument="final", remedy="set their strength above 0"
            )

    def _check_intervals(self) -> None:
        """Refuse time steps, and what is said in them, that no dynamics can have."""
        check_number("timestep", self.timestep, "fs, such as 4")
        if self.timestep > LONGEST_TIMESTEP:
            raise InputError(
                f"must be at most {LONGEST_TIMESTEP:g} fs",
                argument="timestep",
                found=self.timestep,
                remedy="give fs, such as 4",
            )
        check_number("friction", self.friction, "1/ps, such as 1")
        check_number("hydrogen_mass", self.hydrogen_mass, "Da, such as 3")
        check_count("density_interval", self.density_interval, least=1)
        if UPDATE_INTERVAL % self.density_interval:
            raise InputError(
                f"must divide the {UPDATE_INTERVAL} steps between updates of the strength",
                argument="density_interval",
                found=self.density_interval,
                remedy="give 1, 2 or 4",
            )

    @property
    def steps(self) -> int:
        """The steps of all stages; where some are for near or far starts alone, the more of both."""
        return max(self._timeline()[-1])

    def _timeline(self) -> list[tuple[int, int]]:
        """Return the steps that are done on either side, near and far, after each stage."""
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

    @property
    def final_strength_sought(self) -> float | str | None:
        """What the final strength is, or "auto" where it is to be found; None where the fit ends at its full strength."""
        if self.final_strength is None and self.strength == "auto":
            return "auto"
        return self.final_strength

    @property
    def scale_before_end(self) -> float:
        """The part of the full strength that the model is under before the final stages."""
        scales = [stage.strength[1] for stage in self.stages if not stage.final and stage.strength[1] > 0]
        return scales[-1] if scales else 1.0

    def finishing(self) -> Protocol:
        """Return the protocol with a final stage as its end, in as many steps; as it is where it has one, or is to have none.

        What pulls a model into its density is stronger than what is to end with, see `openmm_density.fitting.final_strength`: so
        a last stage relaxes it at the final strength, from the temperature and with the restraints of the stage before, after the
        same search for rotamers: more is found in an annealed model.
        """
        last = self.stages[-1]
        needs_none = (
            self.final_strength_sought is None or last.final or 0 in (self.strength, last.strength[1])
        )
        if needs_none or not self.finish:
            return self
        steps = round(FINISH_SHARE * self.steps)
        finish = Stage(
            FINISH,
            steps,
            temperature=(max(last.temperature), min(*last.temperature, FINISH_COLD)),
            restraints=last.restraints,
            rotamers=last.rotamers,
            final=True,
        )
        shortened = self.with_steps(self.steps - steps)
        return replace(
            shortened, stages=(*shortened.stages, finish), final_strength=self.final_strength_sought
        )

    def in_water(self, steps: int = 2500) -> Protocol:
        """Return the protocol with an equilibration of the water before it, at 1 bar and with the model held in place."""
        if any(stage.pressure is not None for stage in self.stages):
            return self
        equilibrate = Stage(
            "equilibrate",
            steps,
            strength=(0.0, 0.0),
            temperature=(self.stages[0].temperature[0],) * 2,
            restraints=(*DEFAULT_STAGE_RESTRAINTS, "position"),
            pressure=1.0,
        )
        return replace(self, stages=(equilibrate, *self.stages))

    def with_steps(self, steps: int) -> Protocol:
        """Return the protocol with its stages lengthened or shortened uniformly to so many steps in all."""
        check_count("steps", steps, least=1)
        stages = []
        for stage, done in zip(self.stages, self._timeline()):
            end = done[1] if stage.start == "far" else done[0]
            begin = end - stage.steps
            length = round(steps * end / self.steps) - round(steps * begin / self.steps)
            stages.append(replace(stage, steps=length))
        return replace(self, stages=tuple(stages))

    def from_start(self, cc: float) -> Protocol:
        """Return the protocol for a model that starts with this correlation (CC mask), in as many steps.

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
                f"no stage is for a model that starts {side} (CC {cc:.2f})",
                remedy='add one with start = "any"',
            )
        if not sum(stage.steps for stage in stages):
            raise InputError(
                f"must be at least 1 for a model that starts {side} (CC {cc:.2f})",
                argument="steps",
                found=0,
                remedy="lengthen a stage for such a start",
            )
        return replace(self, stages=tuple(stages)).with_steps(self.steps)

    @takes_units(temperature="K")
    def with_temperature(self, temperature: float) -> Protocol:
        """Return the protocol with its highest temperature at so many K, and where it cools, cooling from there."""
        check_number("temperature", temperature, "K, such as 300")
        if temperature > HIGHEST_TEMPERATURE:
            raise too_hot(temperature)
        highest = max(max(stage.temperature) for stage in self.stages)

        def changed(kelvin: float) -> float:
            return float(temperature) if kelvin == highest else min(kelvin, float(temperature))

        stages = [
            replace(stage, temperature=(changed(stage.temperature[0]), changed(stage.temperature[1])))
            for stage in self.stages
        ]
        return replace(self, stages=tuple(stages))

    def with_restraints(self, restraints: Sequence[str]) -> Protocol:
        """Return the protocol holding only these: each where the protocol holds it, or throughout where it does not."""
        wanted = checked_restraints(restraints)
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
        """Return plain lists, dicts, numbers and strings, as a TOML file holds them; what is None is left out."""
        plain = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
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
        write_text(path, toml_text(self.as_dict()))


def toml_text(fields: Mapping[str, Any]) -> str:
    """Return numbers, strings and lists of them as a line each; then lists of tables, as in ``[[stage]]``."""
    tables = {name: value for name, value in fields.items() if _holds_tables(value)}
    lines = [_line(name, value) for name, value in fields.items() if name not in tables]
    for name, rows in tables.items():
        for row in rows:
            lines += ["", f"[[{name}]]", *(_line(key, value) for key, value in row.items())]
    return "\n".join([*lines, ""])


def _holds_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def _line(name: str, value: Any) -> str:
    return f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)
