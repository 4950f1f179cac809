"""Treadle with the OpenAI Responses wire format."""

from functools import partial

import treadle
from bench.contest import compete
from bench.contestants.treadle import opened

if __name__ == "__main__":
    compete(treadle.__version__, partial(opened, api_mode="responses"))
