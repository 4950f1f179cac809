"""Tools for the web: fetching a page. Nothing on this machine or on a private network can be reached with them."""

from treadle.tools.web.fetch import web_fetch_tool

__all__ = ["web_fetch_tool"]
