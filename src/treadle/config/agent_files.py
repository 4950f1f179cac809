"""The text of agent files: templates for new agents, and comments that name common settings."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from treadle.config.yaml_files import dump_yaml
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.suggestions import find_closest

READING_TOOLS = ("read_file", "glob", "grep")


class AgentTemplate(Struct, frozen=True):
    """The settings that a new agent begins with."""

    summary: str
    persona: str = ""
    tools: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    """Tools that need no approval."""


TEMPLATES: Mapping[str, AgentTemplate] = {
    "chat": AgentTemplate("answers questions, without tools", "You are a helpful assistant. Answer briefly."),
    "coder": AgentTemplate(
        "reads and changes the files of its workspace, and runs commands after an approval",
        "You are a software engineer. Read before you change. Run the tests after a change, and report what you "
        "changed and what you could not verify.",
        (*READING_TOOLS, "edit_file", "write_file", "bash", "recall_tool_result"),
        (*READING_TOOLS, "recall_tool_result"),
    ),
    "researcher": AgentTemplate(
        "reads web pages and files, and remembers findings",
        "You are a researcher. Cite the address of every source, and say what you could not confirm.",
        ("http_fetch", *READING_TOOLS, "memory_save", "memory_search"),
        (*READING_TOOLS, "memory_search"),
    ),
    "reviewer": AgentTemplate(
        "reads the files of its workspace and changes nothing",
        "You review changes. Name the file and the line of each finding, and what goes wrong.",
        READING_TOOLS,
        READING_TOOLS,
    ),
}


def find_template(name: str) -> AgentTemplate:
    """Return a template. Raise UsageError if there is none of this name."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    near = find_closest(name, list(TEMPLATES))
    meant = f" Did you mean `{near}`?" if near else ""
    raise UsageError(f"There is no template `{name}`.{meant} Templates: {', '.join(TEMPLATES)}.")


def make_new_agent(name: str, model: str, template: AgentTemplate | None = None) -> AgentSpec:
    """Return an agent as `agents create` writes it: calls need an approval, until its file says otherwise."""
    template = template or AgentTemplate("")
    rules = tuple(ApprovalRule(tool, "auto") for tool in template.free)
    return AgentSpec(
        name,
        model,
        persona=template.persona,
        tools=template.tools,
        approvals=ApprovalRules(default="ask", rules=rules),
    )


def render_agent(spec: AgentSpec) -> str:
    """Return the content of an agent's file, without defaults."""
    settings = {key: value for key, value in msgspec.to_builtins(spec).items() if value not in (None, {}, "")}
    return _dump(settings)


def render_new_agent(spec: AgentSpec) -> str:
    """Return the content of a new agent's file, with comments."""
    settings = msgspec.to_builtins(spec)
    given = {key: settings.pop(key) for key in ("name", "model", "persona", "tools") if settings.get(key)}
    unset = [line for key, line in _UNSET.items() if key not in given]
    return (
        f"# Check and save changes with: treadle agents edit {spec.name}\n"
        f"{_dump(given)}{''.join(unset)}"
        "# Calls that no rule names need an approval. `auto` allows, `deny` forbids.\n"
        f"{_dump({'approvals': settings['approvals']})}{_LIMITS}"
    )


_UNSET = {
    "model": "# model: provider/model-id     # default: defaults.model of config.yaml\n",
    "persona": "# persona: You are a helpful assistant.\n",
    "tools": "# tools: [read_file, grep]     # names or globs; default: none\n",
}
_LIMITS = """\
# limits:
#   max_steps: 50                # model calls of one run
#   deadline: 30m                # time of one run
#   cost: 1.0                    # dollars of one run
# fallbacks: []                  # models to try when the first is not available
# memory: {recall: 5, remember: true}
# sandbox: {network: false}      # for commands
"""


def _dump(settings: Mapping[str, Any]) -> str:
    return dump_yaml(dict(settings), width=110) if settings else ""
