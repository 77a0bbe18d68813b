"""How a diagnosis is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...base.plugins import foreign_to_openmm_torch
from .diagnosis import Diagnosis
from .packages import OPTIONAL_PACKAGES, too_old


def diagnosis_text(diagnosis: Diagnosis) -> Group:
    """Lay a diagnosis out for reading.

    Parameters
    ----------
    diagnosis : Diagnosis
        As `examine` returns it.

    Returns
    -------
    rich.console.Group
        For ``rich.console.Console().print``.
    """
    parts: list[Any] = [
        *(_versions(diagnosis), Text(), _forces(diagnosis), Text()),
        *(_kernels(diagnosis), _compiler(diagnosis), *_failures(diagnosis)),
    ]
    if diagnosis.remedies:
        parts.append(Text())
        parts += [Text(f"→ {remedy}", style="yellow") for remedy in diagnosis.remedies]
    parts.append(Text())
    parts.append(
        Text("Fitting works here.", style="green")
        if diagnosis.ok
        else Text("No force can be added to OpenMM here.", style="bold red")
    )
    return Group(*parts)


def _versions(diagnosis: Diagnosis) -> Table:
    table = _table()
    table.add_row("Python", diagnosis.python)
    unfit = {
        package: f"too old: {version} or newer" for package, version in too_old(diagnosis.versions).items()
    }
    for package, problem in foreign_to_openmm_torch(diagnosis.versions).items():
        unfit.setdefault(package, problem)
    for package, version in diagnosis.versions.items():
        use = OPTIONAL_PACKAGES.get(package)
        absent = Text("not installed" if use is None else f"not installed (optional: {use})", style="dim")
        said = Text(f"{version} ({unfit[package]})", style="red") if package in unfit else version
        table.add_row(package, said or absent)
    return table


def _forces(diagnosis: Diagnosis) -> Table:
    table = _table("force", "platform", "", "")
    for probe in diagnosis.probes:
        ran = ", ".join(filter(None, [probe.device, f"{probe.seconds:.1f} s"]))
        table.add_row(probe.backend, probe.platform, _mark(probe.works), Text(probe.problem or ran))
    for platform, library in diagnosis.absent_platforms.items():
        absent = Text(f"not on this machine, which has no {library}", style="dim")
        table.add_row("", platform, _mark(None), absent)
    return table


def _kernels(diagnosis: Diagnosis) -> Table:
    table = _table("kernel", "", "")
    for kernel in diagnosis.kernels:
        if kernel.loaded or not kernel.tried:
            took = "not compiled yet"
            if kernel.library:
                took = f"compiled{'' if kernel.built_now else ' earlier'}, in {kernel.build_seconds:.0f} s"
            said = ", ".join([took, *([" ".join(kernel.flags)] if kernel.flags else [])])
        else:
            said = kernel.error or ""
        table.add_row(kernel.folder, _mark(kernel.loaded if kernel.tried else None), Text(said))
    for kernel in diagnosis.gpu_kernels:
        said = kernel.problem or f"{kernel.seconds:.1f} s"
        table.add_row(f"{kernel.operator} on the GPU", _mark(kernel.works), Text(said))
    return table


def _compiler(diagnosis: Diagnosis) -> Table:
    table = _table()
    table.add_row("compiler", Text(diagnosis.compiler_version or "none"))
    table.add_row("cache", Text(diagnosis.cache or "none"))
    if diagnosis.cache_problem:
        table.add_row("", Text(f"in place of the default one: {diagnosis.cache_problem}", style="red"))
    table.add_row("GPU", Text(diagnosis.gpu or diagnosis.gpu_problem or "none that torch can use"))
    if diagnosis.gpu:
        service = diagnosis.multi_process_service
        table.add_row("MPS", Text(service or "not installed: fits that share a GPU have it in turns"))
    return table


def _failures(diagnosis: Diagnosis) -> Iterator[Any]:
    """Yield what the loader said of each plugin, and the compiler of the first kernel, that does not work."""
    for path, reason in diagnosis.unloaded_plugins.items():
        yield from (Text(), Text(f"{Path(path).name} does not load", style="red"))
        yield Padding(Text(reason), (0, 2), expand=False)
    for kernel in diagnosis.kernels:
        if kernel.output and kernel.output.strip() != kernel.error:
            tail = "\n".join(kernel.output.strip().splitlines()[-12:])
            yield from (Text(), Text(f"the {kernel.folder} kernel", style="red"))
            yield Padding(Text(tail), (0, 2), expand=False)
            break


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, show_header=bool(headers))
    for header in headers or ("", ""):
        table.add_column(header)
    return table


def _mark(works: bool | None) -> Text:
    if works is None:
        return Text("–", style="dim")
    return Text("yes", style="green") if works else Text("no", style="red")
