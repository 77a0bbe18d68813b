"""The result of map checks: figures, and a sentence for each thing that is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ...errors import InputError


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a map, or with what was said of it.

    Attributes
    ----------
    check : str
        Which of the checks found it, as in `MapChecks.figures`.
    sentence : str
        What was found and what to do.
    is_error : bool
        Whether no fit can be right as it is.
    """

    check: str
    sentence: str
    is_error: bool = False


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
        """Raise InputError, with its sentence, where there is an error among the findings."""
        for finding in self.findings:
            if finding.is_error:
                raise InputError(finding.sentence)

    def __add__(self, other: MapChecks) -> MapChecks:
        """Return the figures and findings of both; where both made a check, those of the later."""
        kept = [finding for finding in self.findings if finding.check not in other.figures]
        findings = sorted(kept + other.findings, key=lambda finding: not finding.is_error)
        return MapChecks({**self.figures, **other.figures}, findings)

    def with_later(self, later: MapChecks) -> list[Finding]:
        """Return the findings of both, of one check those that came later where there are any."""
        found = {finding.check: finding for finding in [*self.findings, *later.findings]}
        return list(found.values())

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, from which `from_dict` makes this again."""
        return {**self.figures, "findings": [asdict(finding) for finding in self.findings]}

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
            return cls(figures, [Finding(**finding) for finding in values["findings"]])
        except (AttributeError, KeyError, TypeError):
            raise InputError(
                "the map checks that were saved cannot be read", remedy="start the fit anew"
            ) from None
