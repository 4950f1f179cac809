"""The methods of an engine on behalf of one user."""

from treadle.api.run_methods import RunMethods
from treadle.domain.access import Principal, Scope
from treadle.domain.errors import UsageError
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller, Operation, Q, R

SCOPES: frozenset[Scope] = frozenset(("read", "run", "approve"))


class UserMethods(RunMethods):
    """Reads and acts on the sessions and runs of one user. What belongs to others does not exist for it."""

    def __init__(self, context: Context, user: str) -> None:
        super().__init__()
        self._principal = Principal(None, user, SCOPES, user=user, visibility="own")
        self._caller = LocalCaller(context.for_caller(self._principal, None))

    @property
    def _operation_client(self) -> LocalCaller:
        raise UsageError("Evaluations are for administrators. Call `evaluate` on the engine.")

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        if operation.scopes and not self._principal.may(*operation.scopes):
            raise UsageError(
                f"The user `{self._principal.user}` may not do this: `{operation.name}` is for administrators. "
                "Call it on the engine."
            )
        return await self._caller.call(operation, request, key=key)
