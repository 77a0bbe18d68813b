"""A fit as its folder records it, so that ``--resume`` continues it without its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.atomic_files import write_text
from ..base.digests import check_unchanged, digest_of
from ..base.errors import InputError
from ..fitting.half_maps import StrengthScan
from ..fitting.placement import Placement
from ..fitting.protocols import Protocol, read_protocol
from ..models.force_field_xml import files_read
from ..models.force_fields import force_field_files, lasting_names
from ..report.results import COMMAND
from ..validation.map_checks import MapChecks
from .arguments import spellings
from .fit_arguments import defaults
from .fit_options import FitOptions

PROTOCOL = "protocol.toml"
# The options that hold a path, or several.
_FILES = ("model", "map", "reference", "restrain_to", "dictionary", "half_map", "ligand_potential", "pae")
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
    # Options as the user gave them, where `options` has what they came to; they are what repeats the fit
    asked: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, options: FitOptions) -> FitRecord:
        """Return that of a fit that has not started."""
        protocol = options.changed_protocol()
        asked = {
            "place": options.files.place,
            "predicted": options.prediction.predicted,
            "platform": options.run.platform,
        }
        return cls(options, protocol, Findings(options.files.place), asked)

    @classmethod
    def read(cls, folder: Path, now: FitOptions) -> FitRecord:
        """Return that of a fit that was interrupted."""
        written = read_command(folder, _FILES, read_force_field_files)
        # An option of an extension that was not there has its default.
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
        return cls(options, read_protocol(folder / PROTOCOL), findings, written.get("asked", {}))

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
            "asked": dict(self.asked),
            "forcefield": lasting_names(self.options.force_field.forcefield),
        }
        write_command(folder, told, _FILES, read_force_field_files(told))
        self.protocol.write(folder / PROTOCOL)


def read_force_field_files(options: Mapping[str, Any]) -> list[Path]:
    """Return the user's files that the force field of a command's options is read from."""
    named = options.get("forcefield")
    return files_read(force_field_files(named)) if named else []


def write_command(
    folder: Path, options: Mapping[str, Any], files: Sequence[str], others: Sequence[Path] = ()
) -> None:
    """Write the options of a command, with a digest of each file that it reads; files within the folder may move with it."""

    def kept(path: str | None) -> str | None:
        if path is None:
            return None
        absolute = Path(path).resolve()
        return absolute.name if absolute.parent == folder.resolve() else str(absolute)

    options = _with_paths(options, files, kept)
    digests = {path: digest_of(folder / path) for path in [*_paths(options, files), *map(str, others)]}
    write_text(folder / COMMAND, json.dumps({"options": options, "sha256": digests}, indent=2) + "\n")


def read_command(
    folder: Path, files: Sequence[str], others: Callable[[Mapping[str, Any]], Sequence[Path]]
) -> dict[str, Any]:
    """Return the options that `write_command` wrote."""
    try:
        written = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
        options, digests = written["options"], written["sha256"]
        if not (isinstance(options, dict) and isinstance(digests, dict)):
            raise TypeError
        digests = {str(folder / path): digest for path, digest in digests.items()}
        options = _with_paths(options, files, lambda path: None if path is None else str(folder / path))
        paths = _paths(options, files)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            "it cannot be read, so that the fit cannot be resumed",
            source=folder / COMMAND,
            remedy="start the fit again",
        ) from None
    check_unchanged(digests)
    for path in [*paths, *map(str, others(options))]:
        if path not in digests:
            raise InputError(
                f"it is not one of the files that the fit began with, by {folder / COMMAND}, so that it cannot be resumed",
                source=path,
                remedy="start the fit again",
            )
    return options


def _with_paths(
    options: Mapping[str, Any], files: Sequence[str], changed: Callable[[str | None], str | None]
) -> dict[str, Any]:
    """Return options with their paths changed."""
    given = {name: options[name] for name in files if name in options}
    new = {
        name: list(map(changed, value)) if isinstance(value, list) else changed(value)
        for name, value in given.items()
    }
    return {**options, **new}


def _paths(options: Mapping[str, Any], files: Sequence[str]) -> list[str]:
    held = [options.get(name) for name in files]
    paths = [path for value in held for path in (value if isinstance(value, list) else [value])]
    if not all(path is None or isinstance(path, str) for path in paths):
        raise TypeError("a path is text")
    return [path for path in paths if path is not None]
