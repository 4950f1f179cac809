"""How to approve a server: with a command, or in a program."""

from typing import Literal

from msgspec import Struct

from treadle.domain.mcp_servers import NO_CONSENT, Consent

Approver = Literal["command", "program", "both"]
"""Who can approve a server: `treadle mcp approve` for entries in files, the program for its own agents. A program
can approve the entries in files, too."""


class ApprovalAdvice(Struct, frozen=True):
    """How to approve one server."""

    server: str
    agent: str = ""
    """The agent that configures it; empty for a server of the home."""
    approver: Approver = "command"

    def tell(self, consent: Consent = NO_CONSENT) -> str:
        """Return the command, the call, or both."""
        command = _make_command(self.server, self.agent, consent)
        call = _make_call(self.server, consent)
        match self.approver:
            case "command":
                return command
            case "program":
                return call
            case "both":
                return f"{command}, or in the program {call}"

    def tell_first(self) -> str:
        """Return how to approve a server for the first time."""
        way = self.tell()
        return f"set approve=True in its treadle.McpServer, or {way}" if self.approver == "program" else way

    def tell_again(self) -> str:
        """Return how to approve a server that has changed."""
        way = self.tell()
        return f'{way}, or set approve="always"' if self.approver == "program" else way

    def tell_model(self) -> str:
        """Return what the user is to do, for a model."""
        if self.approver == "program":
            return "tell the user that the program must approve the server again"
        return f"tell the user to run `{_make_command(self.server, self.agent, NO_CONSENT)}`"


def _make_command(server: str, agent: str, consent: Consent) -> str:
    of_agent = f" --agent {agent}" if agent else ""
    return f"treadle mcp approve {server}{of_agent}{consent.flags}"


def _make_call(server: str, consent: Consent) -> str:
    options = f"{', allow_write=True' if consent.write else ''}{', pin_content=True' if consent.content else ''}"
    return f'engine.mcp.approve("{server}"{options})'
