"""What pyproject.toml cannot say: the folder ``kernels/`` is installed as ``openmm_density.kernels``, whatever it holds."""

from setuptools import find_namespace_packages, setup


def folders(name: str) -> list[str]:
    """Return a folder and all below it as packages, those as well that hold no Python."""
    return find_namespace_packages(include=[name, f"{name}.*"], exclude=["*__pycache__*"])


setup(
    packages=[*folders("openmm_density"), *(f"openmm_density.{folder}" for folder in folders("kernels"))],
    package_dir={"openmm_density": "openmm_density", "openmm_density.kernels": "kernels"},
    # C++, tables, what pages are made of: all that lies there.
    package_data={"": ["*"]},
    exclude_package_data={"": ["*.py[co]"]},
)
