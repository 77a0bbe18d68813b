"""The result of map checks: figures, and a sentence for each thing that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.errors import InputError

ORDER = ("contrast", "box", "resolution", "place", "voxel_size", "handedness", "stretching")
"""Of the checks: what a later one finds may come of what an earlier one does, as a wrong voxel size of a wrong resolution."""

LEAST_FOUND_AGAIN = 0.4
"""Part of the scale that a start asks for which a fitted model took on, or still asks for, where the voxel size is wrong."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a map, or with what was said of it.

    Attributes
    ----------
    check : str
        Which of the checks found it, as in `MapChecks.figures`.
    problem, found, remedy : str
        What is wrong, what was seen of it, and what to do: as of `InputError`, with arguments by `as_argument`.
    is_error : bool
        Whether no fit can be right as it is.
    """

    check: str
    problem: str
    found: str | None = None
    remedy: str | None = None
    is_error: bool = False

    @property
    def sentence(self) -> str:
        """What was found and what to do, with arguments as a Python script writes them."""
        return str(self.error())

    def error(self) -> InputError:
        """Return an error of the same parts."""
        return InputError(self.problem, found=self.found, remedy=self.remedy)

    def spelled(self, spellings: Mapping[str, str]) -> str:
        """Return the sentence with arguments written as somebody else writes them, see `InputError.spelled`."""
        return self.error().spelled(spellings)


@dataclass(frozen=True)
class MapChecks:
    """The figures and findings of the checks of a map with a model.

    Attributes
    ----------
    figures : dict
        Plain numbers by the name of the check; None for a check that could not be made.
    findings : list of Finding
        What is wrong, errors first.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def doubts(self) -> list[str]:
        """A sentence for each finding."""
        return [finding.sentence for finding in self.findings]

    def refuse_errors(self) -> None:
        """Raise InputError, with its parts, where there is an error among the findings."""
        for finding in self.findings:
            if finding.is_error:
                raise finding.error()

    def __add__(self, other: MapChecks) -> MapChecks:
        """Return the figures and findings of both; where both made a check, those of the later."""
        kept = [finding for finding in self.findings if finding.check not in other.figures]
        findings = sorted(kept + other.findings, key=lambda finding: not finding.is_error)
        return MapChecks({**self.figures, **other.figures}, findings)

    def with_later(self, later: MapChecks, cc: float = 0.0) -> list[Finding]:
        """Return the findings of both in the order of the checks, of one check those that came later where there are any.

        A start of another conformation looks as a wrong voxel size does, the model that was fitted does not: where that could
        be looked at, it decides. Nor does a model lie beside its density that has at least the correlation `cc` it was to have
        where it belongs.
        """
        cured = {"place"} if cc >= (self.figures.get("place") or {}).get("cc_placed", np.inf) else set()
        past = [finding for finding in self.findings if finding.check not in cured]
        found = {finding.check: finding for finding in [*past, *later.findings]}
        changed, looks = (
            later.figures.get("stretching"),
            [f.get("voxel_size") for f in (self.figures, later.figures)],
        )
        told = {"voxel_size", "stretching"} & {finding.check for finding in later.findings}
        if changed and all(looks) and not told:
            asked, left = (float(np.log(look["scale"])) for look in looks)
            wrong_by = changed["wrong_by"] + (0.0 if changed.get("fits") else left)
            if wrong_by * np.sign(asked) < LEAST_FOUND_AGAIN * abs(asked):
                found.pop("voxel_size", None)
        return [found[check] for check in sorted(found, key=ORDER.index)]

    def as_dict(self, spellings: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        """Return plain values for JSON, from which `from_dict` makes this again, with findings of one part.

        Parameters
        ----------
        spellings : mapping of str to str
            How arguments are written in their sentences, see `InputError.spelled`.
        """
        findings = [
            {"check": each.check, "sentence": each.spelled(spellings), "is_error": each.is_error}
            for each in self.findings
        ]
        return {**self.figures, "findings": findings}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MapChecks:
        """Return what `as_dict` wrote.

        Raises
        ------
        InputError
            If it did not write them.
        """
        try:
            figures = {name: value for name, value in values.items() if name != "findings"}
            findings = [
                Finding(each["check"], each["sentence"], is_error=each["is_error"])
                for each in values["findings"]
            ]
            return cls(figures, findings)
        except (AttributeError, KeyError, TypeError):
            raise InputError(
                "the map checks that were saved cannot be read", remedy="start the fit again"
            ) from None
