"""Commands of extensions are tested where the extension is, in the folder that those of the command line have."""

from ..cli.conftest import fitted, folder  # noqa: F401
