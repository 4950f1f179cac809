"""Measures what using aiohttp's internals saves: CPU time of model calls on the short path and on aiohttp's own.

    python -m bench.http_client [--calls 300] [--tokens 100]

Both paths run in one process, in turns, against an endpoint in a process of its own."""

import argparse
import asyncio
import time
from statistics import median

from bench.endpoint import serve_endpoint
from treadle.models.http import transport
from treadle.models.http.endpoint import Endpoint
from treadle.models.http.keys import KeyRing
from treadle.models.http.transport import Connections, HttpCall, PreparedPost

ROUNDS = 5


def _never(*_: object) -> bool:
    return False


async def cpu_of_calls(url: str, calls: int, tokens: int, *, short_path: bool) -> float:
    """Return the CPU milliseconds of one call, on the short path or on aiohttp's own."""
    judged = transport.can_send_directly
    transport.can_send_directly = judged if short_path else _never
    connections = Connections()
    body = b'{"model": "tokens-%d", "stream": true, "messages": []}' % tokens
    try:
        post = PreparedPost(Endpoint(provider="fake", url=url, keys=KeyRing(())), connections)
        began = time.process_time()
        for _ in range(calls):
            call = HttpCall(post, "m", None)
            await call.open(body)
            while await call.read():
                pass
            call.close()
        return (time.process_time() - began) * 1000 / calls
    finally:
        transport.can_send_directly = judged
        await connections.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=100)
    wanted = parser.parse_args()
    with serve_endpoint() as base:
        url = f"{base}/chat/completions"
        for tokens in (1, wanted.tokens):
            asyncio.run(cpu_of_calls(url, 20, tokens, short_path=True))
            pairs = [
                [asyncio.run(cpu_of_calls(url, wanted.calls, tokens, short_path=each)) for each in (True, False)]
                for _ in range(ROUNDS)
            ]
            short, own = (median(pair[n] for pair in pairs) for n in (0, 1))
            print(
                f"{tokens:5} tokens: short path {short:.3f} ms, aiohttp's own {own:.3f} ms, ratio {short / own:.2f}"
            )


if __name__ == "__main__":
    main()
