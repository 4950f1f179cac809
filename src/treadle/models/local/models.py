"""Models that run on this machine without an account: a GGUF file, served by a child process that starts at the
first call and ends with the engine."""

import importlib.util
from pathlib import Path

import msgspec

from treadle.domain.errors import UsageError
from treadle.domain.models import Profile
from treadle.domain.providers import NO_TIMEOUTS
from treadle.models.catalog import find_parameters
from treadle.models.local.known_weights import WEIGHTS
from treadle.models.local.server_processes import LocalServers, Notice, ServerNotStarted
from treadle.ports.model import Completed, Failed, ModelRequest, Show

PROVIDER = "local"
CONTEXT_WINDOW = 8192
"""In tokens, unless `models` in `config.yaml` sets another value. Memory is allocated for the whole window."""
PROFILE = Profile(CONTEXT_WINDOW, tools="schema", structured_output="without_tools", local=True)
MAX_REPLY_TOKENS = 1024


class LocalModels:
    """Implements `ports.model.Model` for every GGUF file."""

    def __init__(self, folder: Path) -> None:
        self.notice: Notice = lambda _: None
        self._folder = folder
        self._servers = self._new_servers()

    def find(self, model: str) -> str:
        """Return the id of a model that can be called: a name whose weights are present, or the path of a file.
        Raise UsageError otherwise."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError("A model on this machine needs the extra `local`: pip install 'treadle[local]'.")
        try:
            path = self._path(model)
            is_there = path.is_file()
        except (OSError, ValueError, RuntimeError):  # name too long, not readable, unknown user
            raise UsageError(
                f"`{model[:200]}` cannot be the path of a file here; write local/ and the path of a GGUF file."
            ) from None
        if is_there:
            return model if model in WEIGHTS else str(path.absolute())
        if model in WEIGHTS:
            size = WEIGHTS[model].megabytes
            raise UsageError(
                f"The weights of {model} are not here yet; fetch them ({size} MB) with: treadle models pull {model}"
            )
        names = ", ".join(WEIGHTS)
        raise UsageError(f"There is no file {path}; write local/ and the path of a GGUF file, or one of: {names}.")

    def profile(self, model: str) -> Profile:
        """Return the facts about a model that `find` has returned."""
        if (weights := WEIGHTS.get(model)) is not None:
            return msgspec.structs.replace(PROFILE, parameters=weights.parameters, sampling=dict(weights.sampling))
        return msgspec.structs.replace(PROFILE, parameters=find_parameters(Path(model).name))

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.gguf" if model in WEIGHTS else Path(model).expanduser()

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        # Imported at the first call: the HTTP client is half of the start-up time of a command.
        from treadle.models.formats.chat_completions import FORMAT
        from treadle.models.http.client import ModelClient
        from treadle.models.http.endpoint import Endpoint
        from treadle.models.http.transport import Connections

        servers, path = self._servers, self._path(request.model)
        try:
            server = await servers.get(path, request.profile.context_window)
        except ServerNotStarted as error:
            return Failed("unreachable", str(error), retryable=False, next_model=True)
        connections = Connections()
        url = f"{server.url}/v1{FORMAT.path}"
        endpoint = Endpoint(provider=PROVIDER, url=url, timeouts=NO_TIMEOUTS)
        try:
            end = await ModelClient(FORMAT, endpoint, connections).reply(_limit_reply(request), show)
        finally:
            await connections.close()
        if isinstance(end, Failed) and end.kind == "unreachable":
            await servers.discard(path, server)  # the next attempt starts another
        return end

    @property
    def pids(self) -> list[int]:
        """Return the process ids of the loaded models."""
        return self._servers.pids

    async def close(self) -> None:
        """Stop every server, including one that is still loading. A later call starts a new server."""
        servers, self._servers = self._servers, self._new_servers()
        await servers.close()

    def _new_servers(self) -> LocalServers:
        return LocalServers(lambda line: self.notice(line))


def _limit_reply(request: ModelRequest) -> ModelRequest:
    """Return the request with a limit on the reply, because a small model may not stop on its own."""
    if request.settings.max_tokens is not None:
        return request
    settings = msgspec.structs.replace(request.settings, max_tokens=request.profile.max_output or MAX_REPLY_TOKENS)
    return msgspec.structs.replace(request, settings=settings)
