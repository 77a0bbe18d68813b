"""A fit as its folder records it, so that ``--resume`` continues it without its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..fitting.half_maps import StrengthScan
from ..fitting.placement import Placement
from ..fitting.protocols import Protocol, read_protocol
from ..models.force_field_xml import files_read
from ..models.force_fields import force_field_files, lasting_names
from ..validation.map_checks import MapChecks
from .arguments import spellings
from .command_file import read_command, write_command
from .fit_arguments import defaults
from .fit_options import FitOptions

PROTOCOL = "protocol.toml"
# The options that hold a path, or several.
_FILES = ("model", "map", "reference", "restrain_to", "dictionary", "half_map", "ligand_potential")
# Those of the present command line, not of the fit: a folder may be somebody else's, who must not allow what is not allowed here.
_NEVER_KEPT = ("resume", "allow_scripts", "explain_time")


@dataclass(frozen=True)
class Findings:
    """What a fit determined before its first step, and what is not determined again when it is resumed."""

    # How the model was placed; "off" where it was not, and what the user asks for where the fit has not started
    place: Placement | str
    map_checks: MapChecks | None = None  # Of the map, with the model where it starts
    scan: StrengthScan | None = None  # The strengths that half maps were fitted with
    # Whether the copies of the model in its crystal take part; None where the fit has not started
    crystal_mates: bool | None = None


@dataclass(frozen=True)
class FitRecord:
    """What a fit is asked to do, and what it has found out."""

    options: FitOptions
    protocol: Protocol  # With all changes that the options make
    findings: Findings

    @classmethod
    def new(cls, options: FitOptions) -> FitRecord:
        """Return that of a fit that has not started."""
        protocol = options.changed_protocol()
        return cls(options, protocol, Findings(options.files.place))

    @classmethod
    def read(cls, folder: Path, now: FitOptions) -> FitRecord:
        """Return that of a fit that was interrupted."""
        written = read_command(folder, _FILES, read_force_field_files)
        # An option that an earlier version did not know has its default.
        kept = {
            name: written.get(name, value) for name, value in defaults().items() if name not in _NEVER_KEPT
        }
        given = now.by_name()
        options = FitOptions.of({**kept, **{name: given[name] for name in _NEVER_KEPT}})
        place, map_checks, scan = kept["place"], written.get("map_checks"), written.get("strength_scan")
        findings = Findings(
            Placement(**place) if isinstance(place, dict) else place,
            MapChecks.from_dict(map_checks) if map_checks else None,
            StrengthScan(**scan) if scan else None,
            written.get("crystal_mates"),
        )
        return cls(options, read_protocol(folder / PROTOCOL), findings)

    def with_scan(self, scan: StrengthScan) -> FitRecord:
        """Return the record with the strength that half maps allow as the most at the end, where they set a limit."""
        limit = None if scan.still_rises else scan.chosen
        protocol = replace(self.protocol, final_strength="auto", final_strength_limit=limit)
        return replace(self, protocol=protocol, findings=replace(self.findings, scan=scan))

    def write(self, folder: Path) -> None:
        """Write the record where the fit keeps its states."""
        found = self.findings
        named = self.options.by_name()
        told = {name: value for name, value in named.items() if name not in _NEVER_KEPT}
        told |= {
            "place": found.place.as_dict() if isinstance(found.place, Placement) else found.place,
            "map_checks": None if found.map_checks is None else found.map_checks.as_dict(spellings(named)),
            "strength_scan": None if found.scan is None else found.scan.as_dict(),
            "crystal_mates": found.crystal_mates,
            "forcefield": lasting_names(self.options.force_field.forcefield),
        }
        write_command(folder, told, _FILES, read_force_field_files(told))
        self.protocol.write(folder / PROTOCOL)


def read_force_field_files(options: Mapping[str, Any]) -> list[Path]:
    """Return the user's files that the force field of a command's options is read from."""
    named = options.get("forcefield")
    return files_read(force_field_files(named)) if named else []
