"""Torch before OpenMM, in any order of imports: so OpenMM finds the plugins of openmm-torch, and torch our operators."""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_OWN_FORCE = re.compile(r'\btype="(?:NativeForce|CudaGraphForce)"')
_FAILURE = re.compile(r"Error loading library (?P<path>.*?\.(?:so|dylib|dll)): (?P<reason>.*)", re.DOTALL)

# What a platform itself needs from the machine: a machine without it lacks the platform, and nothing is wrong.
_PLATFORM_LIBRARIES = {"libOpenCL": "OpenCL", "libcuda": "CUDA", "libamdhip64": "HIP"}
_MISSING = re.compile(r"(?P<library>(?P<name>lib\w+)\.so[.\d]*): cannot open shared object file")

# Wheels of openmm-torch, and what their C++ was built against. Beside others they load, and fail or end the process where
# something of them is first used: on OpenCL, or where a System is read with OpenMM 8.6.
_ACELLERA = {"torch": ("2.10", "2.11", "2.12"), "openmm": ("8.4", "8.5")}
_BUILT_FOR: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {
    "openmmtorch": {"1.5": {"torch": ("2.9",), "openmm": ("8.4",)}},
    **{f"acellera-openmmtorch-{device}": {"1.10": _ACELLERA} for device in ("cpu", "cu12", "cu13")},
}

_unloaded: dict[str, str] = {}
_absent: dict[str, str] = {}


def hook_imports(load_own_forces: Callable[[], None], register_operators: Callable[[], None]) -> None:
    """Load plugins and register operators, so that a System or a TorchScript module that uses them can be read.

    Torch and OpenMM take seconds to import. For those that are imported already it is done now; for the others when somebody
    imports them: until then there is nothing that could read anything. `load_own_forces`: called before a System or a Force is
    read that is or has a force of this package; `register_operators`: called once torch is imported.
    """
    _import_hook.register_operators = register_operators
    before_reading = functools.partial(_call_before_reading, load_own_forces)
    if "openmm" in sys.modules:
        before_reading()
        load_torch_plugins()
    if "torch" in sys.modules:
        register_operators()
    else:
        sys.meta_path.insert(0, _import_hook)
    if "openmm" not in sys.modules:
        # Before the hook above, which brings torch and leaves the list while Python goes through it.
        sys.meta_path.insert(0, _AfterImport("openmm", before_reading))


def defer_torch() -> None:
    """Let OpenMM be imported without torch, for a process without a Context; plugins load once torch is imported."""
    _import_hook.brings_torch = False


class _ImportHook(MetaPathFinder):
    """Import torch before OpenMM, and register the operators after torch; finding modules is left to others."""

    brings_torch = True
    register_operators: Callable[[], None]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return torch with the operators; for all else, None."""
        if name == "openmm" and self.brings_torch:
            import torch  # noqa: F401  (the plugins need torch's libraries in the process)
        if name != "torch":
            return None
        sys.meta_path.remove(self)

        def register() -> None:
            self.register_operators()
            if "openmm" in sys.modules:
                load_torch_plugins()

        return _spec_with(name, register)


class _AfterImport(MetaPathFinder):
    """Call something when a module has been imported; finding it is left to others."""

    def __init__(self, module: str, call: Callable[[], None]) -> None:
        self._module, self._call = module, call

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module with what is called after it; for all else, None."""
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        return _spec_with(name, self._call)


def _spec_with(name: str, call: Callable[[], None]) -> ModuleSpec | None:
    """Return what others find of a module's name, which then calls something after its import."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.loader is not None:
        execute = spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            call()

        spec.loader.exec_module = execute_and_call
    return spec


_import_hook = _ImportHook()


def _call_before_reading(load: Callable[[], None]) -> None:
    """Let OpenMM's reader of XML load our forces first: it knows a force only from the library that holds its class."""
    from openmm import XmlSerializer

    for name in ("deserializeSystem", "_deserializeForce"):
        setattr(XmlSerializer, name, staticmethod(_after(load, getattr(XmlSerializer, name))))


def _after(load: Callable[[], None], read: Callable[[str], Any]) -> Callable[[str], Any]:
    @functools.wraps(read)
    def load_and_read(text: str) -> Any:
        if _OWN_FORCE.search(text):
            load()
        return read(text)

    return load_and_read


def load_torch_plugins() -> None:
    """Load the openmm-torch plugins that OpenMM could not, because it was imported before torch."""
    import torch  # noqa: F401  (the plugins need torch's libraries in the process)
    from openmm import OpenMMException, Platform

    failures = Platform.getPluginLoadFailures()
    for failure in failures:
        match = _FAILURE.match(failure)
        if match is None or "Torch" not in match["path"].rsplit("/", 1)[-1]:
            continue
        try:
            Platform.loadPluginLibrary(match["path"])
        except OpenMMException as error:
            absent = absent_platform(str(error), failures)
            if absent is None:
                _unloaded[match["path"]] = str(error)
            else:
                _absent[absent[0]] = absent[1]
        else:
            _unloaded.pop(match["path"], None)


def absent_platform(reason: str, failures: Sequence[str]) -> tuple[str, str] | None:
    """Return the platform that a machine lacks and the library it needs, if that is why a plugin does not load."""
    missing = _MISSING.search(reason)
    if missing is None:
        return None
    if missing["name"] in _PLATFORM_LIBRARIES:
        return _PLATFORM_LIBRARIES[missing["name"]], missing["library"]
    for failure in failures:
        match = _FAILURE.match(failure)
        if match is not None and match["path"].endswith(f"/{missing['library']}"):
            if missing["name"] in match["reason"]:
                return None
            return absent_platform(match["reason"], failures)
    return None


def platform_names() -> list[str]:
    """Return the names of the platforms that OpenMM has here, whether or not they run."""
    from openmm import Platform

    return [Platform.getPlatform(i).getName() for i in range(Platform.getNumPlatforms())]


def unloaded_plugins() -> dict[str, str]:
    """Return by plugin of openmm-torch, except those of `absent_platforms`, why the loader refused it."""
    load_torch_plugins()
    return dict(_unloaded)


def absent_platforms() -> dict[str, str]:
    """Return the platforms of openmm-torch for which the machine has no library, each with the library's name."""
    load_torch_plugins()
    return dict(_absent)


def openmmtorch() -> ModuleType:
    """Import openmm-torch without its note on a deprecated name of OpenMM."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        import openmmtorch
    finally:
        logging.disable(level)
    return openmmtorch


def openmm_torch_versions() -> dict[str, str | None]:
    """Return the version of each installed package that is openmm-torch; ``openmmtorch`` and None where there is none."""
    installed = {package: version for package in _BUILT_FOR if (version := installed_version(package))}
    return installed or {"openmmtorch": None}


def installed_version(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    import importlib.metadata  # takes a while, which a command's help has no need of

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def foreign_to_openmm_torch(versions: Mapping[str, str | None]) -> dict[str, str]:
    """Return what is wrong with each package whose version, by `versions`, no wheel of openmm-torch was built for."""
    foreign = {}
    for wheel, releases in _BUILT_FOR.items():
        for package, built in releases.get(versions.get(wheel) or "", {}).items():
            version = versions.get(package)
            if version and ".".join(version.split(".")[:2]) not in built:
                foreign[package] = f"{wheel} {versions[wheel]} was built for {package} {' or '.join(built)}"
    return foreign


def openmm_torch_problem() -> str | None:
    """Return what of torch and OpenMM does not fit the wheel of openmm-torch here; a build of conda's fits its environment."""
    from importlib.metadata import files

    wheels = {
        package: version
        for package, version in openmm_torch_versions().items()
        if version and any(file.parts[0] == "OpenMM.libs" for file in files(package) or ())
    }
    versions = wheels | {package: installed_version(package) for package in ("torch", "openmm")}
    problems = [
        f"{problem}, and here is {versions[package]}"
        for package, problem in foreign_to_openmm_torch(versions).items()
    ]
    return "; ".join(problems) or None
