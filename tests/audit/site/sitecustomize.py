"""Installs the audit in every Python process that inherits the environment of the suite. The folder leaves the
search path at once, so that the process finds what it would find without it."""

import os
import sys

_own = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _own]
_log = os.environ.get("TREADLE_EXECUTION_AUDIT")
if _log:
    from importlib.machinery import SourceFileLoader

    SourceFileLoader("audit", os.path.join(os.path.dirname(_own), "hook.py")).load_module().install(_log)
