"""Tools for the web: fetching a page. Nothing on this machine or on a private network can be reached with them."""

from treadle.tools.web.fetch import make_web_fetch

__all__ = ["make_web_fetch"]
