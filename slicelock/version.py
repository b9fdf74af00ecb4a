"""Which slicelock this is."""

from importlib import metadata


def version() -> str:
    """The installed version; `0` in a checkout that is only on the path."""
    try:
        return metadata.version("slicelock")
    except metadata.PackageNotFoundError:
        return "0"
