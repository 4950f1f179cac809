"""The version of Treadle."""

VERSION = "0.1.0"
