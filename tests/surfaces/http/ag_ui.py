"""A client of AG-UI: it checks the order of the events, as the specification has it, and builds the messages."""

import json
from typing import Any, Protocol

import aiohttp

from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import Reply

OPENERS = {
    "TEXT_MESSAGE_START": "messageId",
    "REASONING_START": "messageId",
    "REASONING_MESSAGE_START": "messageId",
    "TOOL_CALL_START": "toolCallId",
    "SUBAGENT_STARTED": "subagentRunId",
}
CLOSERS = {
    "TEXT_MESSAGE_END": "TEXT_MESSAGE_START",
    "REASONING_END": "REASONING_START",
    "REASONING_MESSAGE_END": "REASONING_MESSAGE_START",
    "TOOL_CALL_END": "TOOL_CALL_START",
    "SUBAGENT_FINISHED": "SUBAGENT_STARTED",
    "SUBAGENT_ERROR": "SUBAGENT_STARTED",
}
CONTENTS = {
    "TEXT_MESSAGE_CONTENT": "TEXT_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT": "REASONING_MESSAGE_START",
    "TOOL_CALL_ARGS": "TOOL_CALL_START",
}


class UiServer(Protocol):
    """Where the client sends its requests."""

    async def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Reply: ...


class ServingProcess:
    """Implements `UiServer` over a process."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> Reply:
        headers = {"Authorization": f"Bearer {token or self._serving.token}"}
        url = self._serving.url + path
        async with aiohttp.ClientSession(headers=headers) as http, http.request(method, url, json=body) as response:
            found = {name.lower(): value for name, value in response.headers.items()}
            return Reply(response.status, found, await response.read())


class UiThread:
    """The thread of a client, with its messages."""

    def __init__(self, server: UiServer, thread_id: str = "thread-1", agent: str = "one", token: str | None = None):
        self.server = server
        self.thread_id = thread_id
        self.agent = agent
        self.token = token
        self.messages: list[dict[str, Any]] = []
        self.state: Any = None
        self.events: list[dict[str, Any]] = []
        """The events of the latest request."""
        self.runs = 0
        self.treadle: dict[str, str] = {}
        """The run and the session of the latest request."""

    @property
    def texts(self) -> list[tuple[str, Any]]:
        return [(each["role"], each.get("content")) for each in self.messages]

    @property
    def types(self) -> list[str]:
        return [each["type"] for each in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        return self.last["outcome"]["interrupts"]

    def say(self, text: Any) -> None:
        self.messages.append({"id": f"msg-{len(self.messages)}", "role": "user", "content": text})

    async def ask(self, text: Any = None, **more: Any) -> dict[str, Any]:
        """Send a request, with a new message or without one. Return the last event."""
        if text is not None:
            self.say(text)
        self.runs += 1
        body = {
            "threadId": self.thread_id,
            "runId": f"run-{self.runs}",
            "messages": self.messages,
            "state": self.state,
            **more,
        }
        reply = await self.server.ask("POST", f"/v1/agents/{self.agent}/ag-ui", body, token=self.token)
        assert reply.status == 200, reply
        assert reply.headers["content-type"].startswith("text/event-stream")
        self.read(reply.body)
        return self.last

    async def resume(self, status: str = "resolved", **payloads: Any) -> dict[str, Any]:
        """Answer all interrupts of the latest request: with the same payload, or by the reason."""
        entries = [
            {"interruptId": each["id"], "status": status, "payload": payloads.get(each["reason"], payloads)}
            for each in self.interrupts
        ]
        return await self.ask(resume=entries)

    def read(self, stream: bytes) -> None:
        self.events = [json.loads(line[6:]) for line in stream.decode().split("\n\n") if line.startswith("data: ")]
        check_order(self.events)
        assert self.events[0]["threadId"] == self.thread_id
        assert self.events[0]["runId"] == f"run-{self.runs}"
        self.treadle = self.events[0]["metadata"].get("treadle", {})
        for event in self.events:
            self._apply(event)

    def _apply(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self.messages.append({"id": event["messageId"], "role": event["role"], "content": ""})
            case "REASONING_MESSAGE_START":
                self.messages.append({"id": event["messageId"], "role": "reasoning", "content": ""})
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                self._find(event["messageId"])["content"] += event["delta"]
            case "TOOL_CALL_START":
                self._add_call(event)
            case "TOOL_CALL_ARGS":
                self._find_call(event["toolCallId"])["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                told = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
                self.messages.append({**told, "content": event["content"]})
            case "MESSAGES_SNAPSHOT":
                self._replace(event["messages"])
            case "STATE_SNAPSHOT":
                self.state = event["snapshot"]
            case _:
                pass

    def _replace(self, messages: list[dict[str, Any]]) -> None:
        """Do as `@ag-ui/client` does: keep the order of known ids, and append the others."""
        found = {each["id"]: each for each in messages}
        known = [found[each["id"]] for each in self.messages if each["id"] in found]
        added = [each for each in messages if each["id"] not in {known_["id"] for known_ in known}]
        self.messages = [*known, *added]

    def _add_call(self, event: dict[str, Any]) -> None:
        parent: dict[str, Any] | None = next(
            (each for each in self.messages if each["id"] == event["parentMessageId"]), None
        )
        if parent is None:
            parent = {"id": event["parentMessageId"], "role": "assistant", "toolCalls": []}
            self.messages.append(parent)
        call = {"id": event["toolCallId"], "type": "function"}
        parent.setdefault("toolCalls", []).append(
            {**call, "function": {"name": event["toolCallName"], "arguments": ""}}
        )

    def _find(self, message_id: str) -> dict[str, Any]:
        return next(each for each in self.messages if each["id"] == message_id)

    def _find_call(self, call_id: str) -> dict[str, Any]:
        calls = [call for each in self.messages for call in each.get("toolCalls", ())]
        return next(call for call in calls if call["id"] == call_id)


def check_order(events: list[dict[str, Any]]) -> None:
    """Fail if a stream breaks a rule of the specification."""
    assert events[0]["type"] == "RUN_STARTED"
    assert events[0]["protocolVersion"] == "1.0"
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
    open_: set[tuple[str, str]] = set()
    for event in events[1:-1]:
        type_ = event["type"]
        assert type_ not in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR")
        if type_ in OPENERS:
            entity = (type_, event[OPENERS[type_]])
            assert entity not in open_, event
            open_.add(entity)
        elif type_ in CLOSERS:
            open_.remove((CLOSERS[type_], event[OPENERS[CLOSERS[type_]]]))
        elif type_ in CONTENTS:
            assert (CONTENTS[type_], event[OPENERS[CONTENTS[type_]]]) in open_, event
    assert not open_
