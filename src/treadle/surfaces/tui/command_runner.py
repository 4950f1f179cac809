"""Performs the slash commands of the UI."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.modes import MODE_TEXTS, describe_mode, next_mode
from treadle.domain.money import format_cost
from treadle.domain.transcript import MessageItem
from treadle.operations import runs, sessions
from treadle.operations.file_changes import FILES, ListChangedFiles
from treadle.operations.local_admin import GRANTS, REVOKE_GRANT, RevokeGrant
from treadle.surfaces.terminal.output import short_id, when
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat_state import ForkSource
from treadle.surfaces.tui.commands import Slash
from treadle.surfaces.tui.controlled_app import ControlledApp
from treadle.surfaces.tui.item_view import format_count
from treadle.surfaces.tui.model_choice import list_model_rows
from treadle.surfaces.tui.rewind import Rewind
from treadle.surfaces.tui.run_commands import change_run, choose_mode, give_feedback
from treadle.surfaces.tui.session_export import export_markdown
from treadle.surfaces.tui.session_pages import SessionPages
from treadle.surfaces.tui.session_picker import SessionPicker
from treadle.surfaces.tui.transcript import list_calls

if TYPE_CHECKING:
    from treadle.surfaces.tui.picker_screen import Picked, PickerRow, PickerScreen

_FENCED = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1`*\s*$", re.MULTILINE | re.DOTALL)


class CommandRunner:
    """Performs commands on behalf of the app."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._is_auto_refused = False
        """The last choice of the mode auto failed."""
        self.sessions = SessionPicker(app, self.choose_fork)
        self._rewind = Rewind(app, lambda title, hint: self._pick_message(self._session(), title, hint))

    async def run(self, command: Slash, argument: str) -> None:
        """Perform a command."""
        app = self._app
        match command.name:
            case "/help":
                app.action_help()
            case "/new":
                await self.start_session()
            case "/sessions":
                await self.sessions.choose(argument)
            case "/model":
                await self.choose_model(argument)
            case "/agent":
                await self.choose_agent(argument)
            case "/fork" | "/rewind":
                await self._go_back(command.name)
            case "/rename":
                app.flash(await self.sessions.rename(self._session(), argument))
            case "/diff":
                await self._show_changes(argument)
            case "/cost":
                await self._show_cost()
            case "/output":
                self.show_output()
            case "/export":
                await self._export(argument)
            case "/copy":
                self.copy(argument)
            case "/attach":
                app.outbox.attach(_resolve(argument, app.folder))
            case _:
                await self._change(command.name, argument)

    async def _change(self, name: str, argument: str) -> None:
        app = self._app
        match name:
            case "/queue" | "/unqueue" | "/resume" | "/cancel":
                app.flash(await change_run(app.chat, name, argument))
            case "/feedback":
                app.flash(await give_feedback(app.chat, argument))
            case "/mode":
                await self.choose_mode(argument)
            case "/theme":
                self._use_theme(argument or self._next_theme())
            case "/init" | "/review":
                await self._ask_agent(name, argument)
            case "/context" | "/mcp" | "/permissions":
                await self._inspect(name, argument)
            case "/thinking":
                app.action_toggle_thinking()
            case "/details":
                app.action_toggle_details()
            case "/bell":
                self._toggle("bell")
            case "/select":
                self._toggle("copy_on_select")
            case "/mouse":
                self._toggle("mouse")
            case "/quit":
                app.departure.ask()
            case _:
                pass

    async def _ask_agent(self, name: str, argument: str) -> None:
        """Send the message that a command stands for."""
        message = texts.INIT_MESSAGE if name == "/init" else texts.REVIEW_MESSAGE
        await self._app.outbox.send(f"{message}\n\n{argument}" if argument else message)

    async def _inspect(self, name: str, argument: str) -> None:
        """Show what the session is made of."""
        from treadle.operations import context_use, mcp_servers
        from treadle.operations.operation import NoParameters
        from treadle.surfaces.tui import inspection

        app = self._app
        match name:
            case "/context":
                listed = (await app.link.call(sessions.RUNS, sessions.RunsOfSession(self._session()))).items
                found = await app.link.call(context_use.CONTEXT, runs.OneRun(listed[-1].run_id))
                self._report(inspection.describe_context(found))
            case "/mcp":
                servers = (await app.link.call(mcp_servers.LIST, NoParameters())).items
                self._report(inspection.describe_servers(servers))
            case _:
                await self._show_permissions(argument.split())

    async def _show_permissions(self, words: list[str]) -> None:
        """Show what the agent may do without asking, or remove what was allowed for the session or permanently."""
        from treadle.surfaces.tui import inspection

        app, agent, run_id = self._app, self._app.chat.spec(), self._app.chat.latest_run
        allowed = app.link.home.list_allowed(agent.name)
        grants = () if run_id is None else (await app.link.call(GRANTS, runs.OneRun(run_id))).items
        if not words:
            _, path = app.link.home.files_of_agent(agent.name)
            self._report(inspection.describe_permissions(agent, allowed, str(path), grants))
            return
        number = int(words[1]) if len(words) == 2 and words[0] == "remove" and words[1].isdecimal() else 0
        if not 1 <= number <= len(grants) + len(allowed):
            raise UsageError("/permissions takes nothing, or `remove` and the number of an entry that you allowed.")
        if run_id is not None and number <= len(grants):
            grant = grants[number - 1]
            await app.link.call(REVOKE_GRANT, RevokeGrant(run_id, grant.tool, grant.pattern))
            app.flash(texts.GRANT_REMOVED.format(rule=f"{grant.tool} {grant.pattern}"))
            return
        rule = allowed[number - len(grants) - 1]
        app.link.home.disallow(agent.name, rule)
        app.flash(texts.PERMISSION_REMOVED.format(rule=f"{rule.tool} {rule.match or ''}".strip()))

    def _next_theme(self) -> str:
        names = self._app.themes.names
        return names[(names.index(self._app.palette.name) + 1) % len(names)]

    def _use_theme(self, name: str) -> None:
        app = self._app
        if name not in app.themes.names:
            raise UsageError(f"There is no theme `{name}`. Themes: {', '.join(app.themes.names)}.")
        app.use_theme(name)
        app.save_preferences(theme=name)
        app.flash(texts.THEME_SET.format(theme=name))

    def _toggle(self, name: str) -> None:
        state = not getattr(self._app.preferences, name)
        self._app.save_preferences(**{name: state})
        self._app.flash(texts.SETTING.format(name=name.replace("_", " "), state="on" if state else "off"))

    async def choose_mode(self, argument: str) -> None:
        """Choose the named mode, or the next one."""
        self._app.flash(await (choose_mode(self._app.chat, argument) if argument else self._choose_next_mode()))

    async def _choose_next_mode(self) -> str:
        """Choose the next mode. One that was refused is passed over the next time."""
        chat = self._app.chat
        mode = next_mode(chat.effective_mode, can_be_auto=not self._is_auto_refused)
        self._is_auto_refused = mode == "auto"
        await chat.set_mode(mode)
        self._is_auto_refused = False
        return texts.MODE_SET.format(name=describe_mode(mode), text=MODE_TEXTS[mode])

    def _session(self) -> SessionId:
        if self._app.chat.session_id is None:
            raise UsageError(texts.NO_SESSION)
        return self._app.chat.session_id

    # ── Sessions ──

    async def _go_back(self, name: str) -> None:
        """Go back to an earlier message of the session."""
        if name == "/rewind":
            await self._rewind.choose()
        else:
            await self.choose_fork(self._app.chat.session_id, self._app.chat.folder)

    async def start_session(self) -> None:
        """Begin a new session. A run in progress continues."""
        await self._app.chat.open_session(None)
        self._app.welcome()
        self._app.flash(texts.NEW_SESSION)

    async def _pick(self, screen: "PickerScreen") -> "Picked | None":
        return await self._app.ask(screen)

    async def choose_fork(self, session_id: SessionId | None, folder: str) -> None:
        """Let the user choose a message of a session to fork from, and change it in the prompt. The fork works in a
        folder, or in the current one if it is empty."""
        if session_id is None:
            raise UsageError(texts.NO_SESSION)
        item = await self._pick_message(session_id, texts.FORK_TITLE, texts.FORK_HINT)
        if item is not None:
            self._app.input.fork_source = ForkSource(item.run_id, folder)
            self._app.input.enter("fork", item.text)

    async def _pick_message(self, session_id: SessionId, title: str, hint: str) -> MessageItem | None:
        """Let the user choose a message of a session, the latest first."""
        from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen

        app = self._app
        said = list[MessageItem]()

        async def load() -> list[PickerRow]:
            found = list((await app.link.call(sessions.RUNS, sessions.RunsOfSession(session_id))).items)
            pages = SessionPages(app.link, found)
            while pages.has_more and len(said) < 200:
                items, _ = await pages.read_page()
                said[:0] = [item for item in items if isinstance(item, MessageItem) and item.delivery == "message"]
            return [PickerRow(str(index), item.text, _say_when(item)) for index, item in enumerate(said)][::-1]

        picked = await self._pick(PickerScreen(app.palette, app.key_map, title, hint, load))
        return None if picked is None else said[int(picked.key)]

    # ── Models and agents ──

    async def choose_model(self, name: str) -> None:
        """Use another model for the next messages of the session."""
        app = self._app
        if not name:
            from treadle.surfaces.tui.picker_screen import PickerRow, PickerScreen

            async def load_models() -> list[PickerRow]:
                return await list_model_rows(app.link)

            picked = await self._pick(
                PickerScreen(
                    app.palette, app.key_map, texts.MODELS_TITLE, texts.MODELS_HINT, load_models, allows_typed=True
                )
            )
            if picked is None:
                return
            name = picked.key
        await app.chat.set_model(name)
        app.flash(texts.MODEL_SET.format(model=name))

    async def choose_agent(self, name: str) -> None:
        """Talk to another agent, in a new session."""
        app = self._app
        if not name:
            from treadle.surfaces.tui.picker_screen import PickerScreen

            picked = await self._pick(
                PickerScreen(app.palette, app.key_map, texts.AGENTS_TITLE, texts.AGENTS_HINT, self.list_agents)
            )
            if picked is None:
                return
            name = picked.key
        if name != "default" and name not in app.link.home.agents():
            app.link.home.refuse_unknown(name)
        await app.chat.open_session(None, name)
        app.welcome()
        app.input.show_mode()
        app.flash(texts.AGENT_SET.format(agent=name))

    async def list_agents(self) -> "list[PickerRow]":
        """Return the rows of the agent picker."""
        from treadle.surfaces.tui.picker_screen import PickerRow

        known = list(self._app.link.home.agents())
        names = known if "default" in known else ["default", *known]
        return [PickerRow(each, each, _describe_agent(self._app, each)) for each in names]

    # ── Looking at the session ──

    def _report(self, text: str) -> None:
        """Show something about the session in the transcript."""
        self._app.chat.transcript.report(text)
        self._app.view.follow_end()

    def show_output(self) -> None:
        """Show the output of the call that is on the screen, or of the latest one before it."""
        from treadle.surfaces.tui.call_output import read_output
        from treadle.surfaces.tui.output_screen import OutputScreen

        app = self._app
        items = app.child_runs.transcript.items
        shown = app.view.last_visible
        calls = [call for call in app.child_runs.transcript.calls if call.result or call.output]
        if not calls:
            app.flash(texts.NO_OUTPUT)
            return
        end = next((index for index, item in enumerate(items) if item is shown), len(items))
        before = len([call for call in list_calls(items[: end + 1]) if call.result or call.output])
        app.push_screen(
            OutputScreen(
                app.palette, app.key_map, calls, max(0, before - 1), lambda item: read_output(app.link, item)
            )
        )

    async def _show_changes(self, argument: str) -> None:
        """Show what the files of the session are now, compared to before its first or its last message."""
        app = self._app
        if argument and argument != "last":
            await self._compare(argument.split())
            return
        session_id = app.chat.session_id
        if session_id is None:
            app.flash(texts.NO_CHANGES)
            return
        listed = (await app.link.call(sessions.RUNS, sessions.RunsOfSession(session_id))).items
        run_id = listed[-1 if argument else 0].run_id
        found = await app.link.call(FILES, ListChangedFiles(run_id, later=True, diffs=True))
        for call in found.unrecorded:
            app.chat.transcript.report(texts.NOT_RECORDED.format(call=call.call_id, reason=call.reason))
        if found.files:
            app.chat.transcript.report_files(found.files)
            app.view.follow_end()
        else:
            app.flash(texts.NO_CHANGES)

    async def _compare(self, ids: list[str]) -> None:
        from treadle.operations.run_inspection import DIFF, DiffRuns

        if len(ids) != 2:
            raise UsageError("/diff takes nothing, `last` or two runs. Write: /diff RUN OTHER.")
        found = await self._app.link.call(DIFF, DiffRuns(RunId(ids[0]), RunId(ids[1])))
        from treadle.surfaces.tui.session_export import describe_diff

        self._report(describe_diff(found))

    async def _show_cost(self) -> None:
        app = self._app
        found = (await app.link.call(sessions.RUNS, sessions.RunsOfSession(self._session()))).items
        rows: list[str] = []
        cost, tokens, unpriced = 0.0, 0, 0
        for run in found[-100:]:
            detail = await app.link.call(runs.SHOW, runs.ShowRun(run.run_id))
            if detail.result is None:
                continue
            used = detail.result.metrics
            cost, tokens = cost + used.cost, tokens + used.input_tokens + used.output_tokens
            unpriced += used.unpriced_calls
            message = " ".join(detail.message.split())[:40].replace("|", "/")
            rows.append(
                f"| {short_id(run.run_id)} | {message} | {used.steps} | {format_count(used.input_tokens)} "
                f"| {format_count(used.output_tokens)} | {format_cost(used.cost, used.unpriced_calls)} |"
            )
        head = "| run | message | steps | in | out | cost |\n|---|---|---|---|---|---|\n"
        total = f"\n\n{format_count(tokens)} tokens, {format_cost(cost, unpriced)}"
        self._report(f"## {texts.COST}\n\n{head}" + "\n".join(rows) + total)

    async def _export(self, argument: str) -> None:
        app = self._app
        path = _resolve(argument or f"{self._session()}.md", Path())
        text = await export_markdown(app.link, self._session())
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise UsageError(f"{path} exists already. Name another file: /export FILE.") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}. Name another file.") from None
        app.flash(texts.EXPORTED.format(path=path))

    def copy(self, what: str) -> None:
        """Copy the last answer, or its last code block."""
        app = self._app
        answer = app.child_runs.transcript.last_answer
        if answer is None:
            app.flash(texts.NOTHING_TO_COPY)
            return
        if what == "code":
            blocks = _FENCED.findall(answer)
            if not blocks:
                app.flash(texts.NO_CODE_TO_COPY)
                return
            answer = str(blocks[-1][1])
        app.copy_to_clipboard(answer)
        app.flash(texts.COPIED.format(what="the last code block" if what == "code" else "the last answer"))


def _resolve(name: str, folder: Path) -> Path:
    """Return the file that the user names, in a folder unless its path is absolute."""
    return folder.absolute() / Path(name).expanduser()


def _say_when(item: MessageItem) -> str:
    return when(datetime.fromtimestamp(item.at, UTC))


def _describe_agent(app: ControlledApp, name: str) -> str:
    try:
        return app.link.home.agent(name).model
    except TreadleError as error:
        return str(error)
