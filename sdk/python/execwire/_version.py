"""The version of the package, for pip too."""

__version__ = "0.1.0"
