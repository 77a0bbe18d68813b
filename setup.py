"""What pyproject.toml cannot say: the folder ``kernels/`` is installed as ``openmm_density.kernels``, whatever it holds."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["openmm_density", "openmm_density.*"]),
        *(f"openmm_density.{package}" for package in find_packages(include=["kernels", "kernels.*"])),
    ],
    package_dir={"openmm_density": "openmm_density", "openmm_density.kernels": "kernels"},
    package_data={"": ["*.cpp", "*.h", "*.npz", "py.typed"]},
)
