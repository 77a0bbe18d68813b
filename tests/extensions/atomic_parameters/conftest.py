"""The fit of a fragment, shared with the tests of fits."""

from ...fitting.conftest import fitted  # noqa: F401
