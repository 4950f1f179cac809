"""`vault_get`: lets an agent use a secret without seeing it."""

from typing import Annotated

from msgspec import Meta

from treadle.domain.secret_refs import make_secret_ref
from treadle.ports.tool import Tool, ToolContext, ToolError
from treadle.ports.vault import Vault
from treadle.tools.function import tool

_INSTRUCTIONS = (
    "{handle} stands for the secret {name}. Write it in an argument of a tool where the value belongs: the tool "
    "gets the value; you never see it. In bash it is also the variable ${name}. Never ask a person for the value."
)


def make_vault_get(vault: Vault) -> Tool:
    """Return the tool for a vault. It has no effect and may be repeated: a reference to a secret is only text."""

    async def get(
        name: Annotated[str, Meta(description="The name of the secret, for example GITHUB_TOKEN.")],
        context: ToolContext,
    ) -> str:
        granted = vault.names(context.agent)
        if name not in granted:
            known = ", ".join(sorted(granted)) or "none"
            raise ToolError(f"No secret `{name}` is granted to you; granted are: {known}.")
        return _INSTRUCTIONS.format(handle=make_secret_ref(name), name=name)

    return tool(
        effect="none",
        repeatable=True,
        name="vault_get",
        description="Get the handle of a secret that you were granted, to use it in the arguments of other tools.",
    )(get)
