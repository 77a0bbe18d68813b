"""The fit that tests of what a fit does look at as well."""

from ..fitting.conftest import _forked, fitted  # noqa: F401
