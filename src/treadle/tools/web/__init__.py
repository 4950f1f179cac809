"""Tools for the web. They cannot reach this machine or private networks."""

from treadle.tools.web.fetch import make_web_fetch

__all__ = ["make_web_fetch"]
