"""Every text that the terminal UI shows, except the descriptions of keys and commands (`keys`, `commands`)."""

# ── Transcript ──
UNVERIFIED = "Unverified: no tool call did this: {claim}"
EDITED = "edited by the reviewer"
CHILD_WAITS = {"approval": "needs an approval", "answer": "asks a question", "interrupted": "interrupted"}
CHILD_OPEN = "Child run: {path} · {state} · {key} goes back"
NO_CHILD = "No child run is shown here."
CHILDREN_TITLE = "Open which child run?"
CHILDREN_HINT = "Enter opens · {keys[picker.close]} closes"
THINKING = "Thinking"
THOUGHT = "Thought for {seconds}"
THOUGHT_BEFORE = "Thinking"
STEERED = "steered"
MORE_LINES = "… {lines}"
MORE_DETAILS = "… {lines} · {key} shows {them}"
LINES_LEFT_OUT = "… {count} lines left out · /output shows all of them …"
OUTPUT_TRUNCATED = "… only the beginning and the end are here · /output shows all of it …"
EXIT_CODE = "exit code {code}"
NO_RESULT = "(no output)"
IMAGES = "[{count} image{s}, {size}]"
WRITING = "writing the call, {size}"
CALL_STATES = {
    "writing": "writing",
    "pending": "waits",
    "approval": "needs your approval",
    "question": "asks you",
    "client": "with the client",
    "running": "running",
    "done": "done",
    "failed": "failed",
    "denied": "denied",
    "blocked": "blocked",
}
WELCOME = """\
# Treadle

Ask {agent} anything. It works in `{folder}`.

- `/` lists the commands, `@` completes file names.
- While it works: **{keys[message.send]}** steers it, **{keys[message.queue]}** queues a message for later,
  **{keys[message.stop]}** interrupts it.
- **{keys[anywhere.help]}** shows all keys.
"""

# ── Output of a call ──
OUTPUT_PLACE = "lines {first} to {last} of {count}"
OUTPUT_HINT = "{keys[output.previous_call]}, {keys[output.next_call]} other calls · {keys[output.close]} closes"
DETAILS_SHOWN, DETAILS_HIDDEN = "Tool calls are shown in detail.", "Tool calls are shown in short."
THINKING_SHOWN, THINKING_HIDDEN = "Thinking is shown.", "Thinking is hidden."
NO_OUTPUT = "No tool call has an output yet."

# ── Input ──
PLACEHOLDER = "Message {agent}   ·   / commands   @ files   {keys[anywhere.help]} keys"
PLACEHOLDER_BUSY = (
    "{keys[message.send]} steers   ·   {keys[message.queue]} queues   ·   {keys[message.stop]} interrupts"
)
PLACEHOLDER_CHILD = "A message goes to the session   ·   {keys[message.stop]} goes back"
PLACEHOLDER_WAITING = "{keys[message.send]} resumes   ·   a message redirects it   ·   {keys[message.stop]} cancels"
PLACEHOLDER_NOTE = (
    "Why not? The agent reads this note.   {keys[message.send]} denies   ·   {keys[message.stop]} goes back"
)
PLACEHOLDER_EDIT = (
    "Edit the arguments.   {keys[message.send]} runs the call with them   ·   {keys[message.stop]} goes back"
)
PLACEHOLDER_ANSWER = "Type your answer, or press its number.   {keys[message.send]} answers"
PLACEHOLDER_SEARCH = (
    "Search the history.   {keys[message.send]} takes it   ·   {keys[message.search_history]} next   ·   "
    "{keys[message.stop]} goes back"
)
PLACEHOLDER_RENAME = "New title.   Enter renames   ·   {keys[picker.close]} goes back"
PLACEHOLDER_FORK = (
    "Change the message to fork with it.   {keys[message.send]} forks   ·   {keys[message.stop]} goes back"
)
TITLE_NOTE, TITLE_EDIT, TITLE_ANSWER = "deny with a note", "edit the arguments", "answer"
TITLE_SEARCH, TITLE_FORK = "history", "fork from this message"
PASTED = "pasted text, {lines} lines, {size}"
ATTACHED_IMAGE = "{name}, {size}"
ATTACHED_FILE = "{name}, {size}"
PASTED_IMAGE = "pasted image"
CLIPBOARD_IMAGE = "image of the clipboard"
CLIPBOARD_TOO_LARGE = "The clipboard holds more than {limit}, the limit of the agent for an attachment."
NO_CLIPBOARD = "The clipboard cannot be read. Install wl-clipboard (Wayland), xclip (X11) or pngpaste (macOS)."
PASTE_NAME = "pasted text {number}"
QUEUED = "queued: {text}"
QUEUED_HINT = "{keys[message.edit_queued]} edits the last one"
CHIP_HINT = "Backspace in an empty message removes the last one"
NO_MATCH = "no match"
MORE_SUGGESTIONS = "Up and Down show more"
NO_SUCH_FILE = "No file has such a name. {keys[message.send]} sends the message as it is."
NOTHING_TO_QUEUE_AFTER = "No run is in progress. {keys[message.send]} sends the message."
UNKNOWN_COMMAND = "There is no command {name}. Type / for the list."
UNREADABLE = "{path} cannot be attached: {error}."
TOO_LONG = (
    "The message is too long: {size:,} characters. The limit is {limit:,}. Shorten it, or attach it as a file."
)

# ── Approvals and questions ──
APPROVAL_TITLE = "{agent} asks to run {tool}"
COUNT = "{index} of {count}"
PLAN_TITLE = "{agent} asks you to approve its plan"
LAST_CHOICE = "{key}: {help}"
ALLOWED_ALWAYS = "Allowed in this workspace from now on: {rule}. The rule is in {path}."
ANSWER_KEY = "{keys[anywhere.answer]} answers"
NO_RULE = "no rule matches only such calls; 1 runs it once"
VIEW_FIRST = "{keys[approval.scroll_on]} first: the call is longer than this panel."
FOCUS_APPROVAL = "An approval waits. Send or clear your message to answer it, or press {keys[anywhere.answer]}."
LATER = "Left for later. {keys[anywhere.answer]} shows it again."
QUESTION_TITLE = "{agent} asks"

# ── Plan ──
PLAN = "Plan · {summary}"
PLAN_LEFT_OUT = " · {count} more"

# ── Status and banners ──
STATES = {
    "idle": "ready",
    "pending": "starting",
    "thinking": "thinking",
    "answering": "answering",
    "calling": "{tool}",
    "waiting:retry": "retrying",
    "waiting:interrupted": "interrupted",
    "waiting:unavailable": "cannot continue",
    "waiting:breaker": "provider paused",
    "waiting:approval": "needs your approval",
    "waiting:answer": "asks you",
    "waiting:quota": "waits for a quota",
    "waiting:budget": "waits for a budget",
    "waiting:child": "waits for a sub-agent",
}
NEWS_BELOW = "↓ more below, {keys[anywhere.scroll_end]}"
CONTEXT = "{share:.0%} of {window}"
UNAVAILABLE = "{detail}"
SERVER_GONE = "The process that ran your agents has ended. Reconnecting … Your input is kept."
TAKEN_OVER = "`treadle serve` takes over the home. Runs stop at the next safe point and continue there."
ATTACHED = "Attached to the process that owns the home."
OWNS = "This process owns the home now."
CANNOT_OPEN = "The home cannot be opened: {error}"
SENDING_FAILED = "Not sent: {error}"
COPIED = "Copied: {what}."
NOTHING_TO_COPY = "There is no answer to copy yet."
NO_CODE_TO_COPY = "The last answer has no code block."
NEW_SESSION = "New session."
MODE_SET = "Mode: {name}. {text}"
NO_SUCH_MODE = "{error}."
MODEL_SET = "Model: {model}."
AGENT_SET = "Agent: {agent}. It answers in a new session."
THEME_SET = "Theme: {theme}."
SETTING = "{name}: {state}."
EXPORTED = "Exported to {path}."
RENAMED = "Renamed to “{title}”."
EMPTY_TITLE = "The title is empty. Write one: /rename TITLE."
DELETED = "Deleted."
DELETE_CONFIRM = "Delete “{title}” permanently? y deletes it, any other key keeps it."
DELETE_CURRENT = "This session is open. Start or open another one first."
REMOVED_QUEUED = "Removed from the queue."
CANCELLING = "Cancelling …"
INTERRUPTING = "Interrupting … {keys[message.stop]} again cancels the run."
QUIT_AGAIN = "Press {keys[anywhere.leave]} again to quit."
NO_RUN = "No run is in progress."
NOTHING_TO_RESUME = "No run is interrupted, so there is nothing to resume."
RESUMING = "Resuming …"
QUEUE_WHAT = "There is nothing to queue. Write: /queue TEXT."
QUEUED_NOW = "Queued."
SENT_NOW = "Sent: no run is in progress."
NOTHING_QUEUED = "No message is queued."
NO_SESSION = "There is no session yet. Send a message first."
FORKED_TO = "Forked into a new session."
NO_CHANGES = "No file differs from what it was before."
NOT_STORED = "Its earlier content was not stored: {reason}."
NOT_RECORDED = "Not recorded: what the call `{call}` changed ({reason})."
BELL_DONE = "{agent} is done"
BELL_WAITS = "{agent} needs you"
COST = "Cost of this session"

FEEDBACK_HOW = "/feedback takes `good` or `bad`, and a note if you like: /feedback bad It missed a file."
FEEDBACK_GIVEN = "Feedback on this run: {score}."

# ── Quitting ──
QUIT_TITLE = "A run is in progress"
QUIT_WAITING_TITLE = "A run waits for you"
LEAVE_WAITING = "Leave it waiting. Open treadle again to answer it."
QUIT_CHOICES = (
    ("1", "background", "Continue in the background. Open treadle again to see it."),
    ("2", "park", "Park it: stop now, resume later."),
    ("3", "cancel", "Cancel it."),
    ("esc", "stay", "Stay."),
)
MOVING = "Moving the run to the background: it stops at the next safe point. {keys[anywhere.leave]} leaves at once."
PARKING = "Parking the run …"
LEFT_BACKGROUND = "{run_id} continues in the background. Open it again: treadle chat --session {session_id}"
LEFT_PARKED = "{run_id} is parked. Open it again: treadle chat --session {session_id}"
RESUME_HINT = "Open this session again: treadle chat --session {session_id}"

# ── Pickers ──
SESSIONS_TITLE = "Sessions of this folder"
ALL_SESSIONS_TITLE = "Sessions of all folders"
SESSIONS_HINT = (
    "Enter opens · {keys[picker.all]} all folders · {keys[picker.fork]} fork\n"
    "{keys[picker.rename]} rename · {keys[picker.delete]} delete · {keys[picker.close]} closes"
)
OTHER_FOLDER = "This session works in {folder}."
WORK_HERE = "Work here, in {folder}. What was allowed for the session no longer applies."
WORK_THERE = "Continue in {folder}."
NOT_OPENED = "Not opened."
MODELS_TITLE = "Models"
MODELS_HINT = "Enter selects · type any provider/model-id · {keys[picker.close]} closes"
AGENTS_TITLE = "Agents"
AGENTS_HINT = "Enter selects · {keys[picker.close]} closes"
FORK_TITLE = "Fork from which message?"
FORK_HINT = "Enter takes the message to change it · {keys[picker.close]} closes"
REWIND_TITLE = "Rewind to before which message?"
REWIND_HINT = "Enter chooses the message · {keys[picker.close]} closes"
REWIND_QUESTION = "What should be as it was before this message?{note}"
REWIND_GAPS = "\nThe changes of {count} command{s} were not recorded and stay."
REWIND_BOTH = "Files and conversation"
REWIND_FILES = "Files: {files}"
REWIND_CONVERSATION = "Conversation: change the message and send it again"
REWIND_CONFLICT = "Someone else changed these too: {files}"
REWIND_LEAVE = "Leave them as they are now"
REWIND_OVERWRITE = "Restore them all the same"
FILES_RESTORED = "Restored: {files}."
NO_FILES_RESTORED = "No file was restored."
FILES_LEFT = "{count} not restored ({reasons})."
USE_SKILL = "Load the skill `{name}` with load_skill and work by it.{task}"
PROMPT_SOURCE = "the MCP server `{server}`"
PROMPT_IMAGE = "{name} {number}"
PROMPT_MISSING = "{missing} is missing. Write: {usage}"
COMMAND_INSERTED = "From {path}. Read it, then press {keys[message.send]} to send it."
SHELL_RUNNING = "Running: {command}"
SHELL_NAME = "output of a command that the user ran.txt"
SHELL_CHIP = "! {command} · {size}"
SHELL_STOPPED = "[stopped: {why}]"
SHELL_FAILED = "[exit code {code}]"
SHELL_SILENT = "[no output]"
INIT_MESSAGE = """\
Write AGENTS.md at the top of this project, for agents that will work on it. Look around first: the README, \
the build files, the tests and some of the code. Say in at most a page how to build, test and check the \
project, including a single test; how the code is divided; and the conventions that are not obvious. If there \
is an AGENTS.md, or files of that purpose from other tools, keep what is right and improve it. Write only what \
you have checked."""
REVIEW_MESSAGE = """\
Review the changes of this project that are not committed, as git shows them, and change nothing. Read the \
code around them. Report bugs, security problems, broken cases and missing tests, the worst first, each with \
its file and line and how to fix it. Say so if there is nothing to report."""
CONTEXT_TITLE = "Context"
CONTEXT_HEAD = "About {tokens} of {window} tokens ({model}), as of the latest step."
CONTEXT_KINDS = {
    "system": "system prompt",
    "tools": "tools",
    "messages": "your messages",
    "answers": "answers",
    "thinking": "thinking",
    "calls": "tool calls",
    "results": "tool results",
    "images": "images",
}
CONTEXT_FREE = "free"
MCP_TITLE = "MCP servers"
NO_MCP_SERVERS = "No MCP server is configured. `treadle mcp add` adds one."
PERMISSIONS_TITLE = "Permissions"
PERMISSIONS_DEFAULT = "Everything else: `{default}` ({meaning})."
PERMISSIONS_MEANING = {"auto": "it runs without asking", "ask": "it asks first", "deny": "it is denied"}
PERMISSIONS_ALLOWED = "Allowed permanently, in `{path}`:"
PERMISSIONS_SESSION = "Allowed in this session, in this workspace, until the session ends:"
PERMISSIONS_HINT = "`/permissions remove N` removes the entry with this number."
GRANT_REMOVED = "Removed: {rule}. You are asked again from the next call on."
PERMISSION_REMOVED = "Removed: {rule}. You are asked again from the next run on."
FIND_TITLE = "Search in this session"
FIND_HINT = "Enter goes there · {keys[picker.close]} closes"
FIND_KINDS = {
    "message": "your message",
    "answer": "answer",
    "thinking": "thinking",
    "question": "question",
    "note": "note",
}
PICKER_SEARCH = "Search"
PICKER_EMPTY = "Nothing found."
PICKER_LOADING = "Loading…"
NO_EDITOR = "This terminal cannot be given to an editor."
USE_TYPED = "use this name"

# ── Set-up ──
SETUP_TITLE = "Choose a model"
SETUP_INTRO = "No model is set yet. Choose one, enter a key, or name any provider/model-id:"
SETUP_DOWNLOADING = "Downloading {bar}"
SETUP_HINT = "Enter tests and saves · type to search or to name any provider/model-id · Esc quits"
SETUP_ASKED = "Enter continues · Esc goes back"
EMBEDDED = "smollm2"

# ── Help ──
HELP_TITLE = "Keys and commands"
HELP_COMMANDS = "Commands"
HELP_HINT = "Esc closes"

# ── Command line ──
INSTALL = (
    "The terminal UI is not installed. Install it: pip install 'treadle[tui]'. "
    "Without it: treadle run -i holds a conversation."
)
NEEDS_TERMINAL = "`treadle chat` needs a terminal. Send single messages with: treadle run --session NAME MESSAGE"
INLINE_HINT = "Type a message. /help lists the commands, Ctrl-C interrupts a run, Ctrl-D leaves."
INLINE_PROMPT = "> "
INLINE_RECALLED = "    to read them: treadle runs prompt {run}"
INLINE_EDIT = "arguments as JSON, on one or more lines; an empty line goes back: "
INLINE_CUT = (
    "The terminal has cut the line after 4,095 bytes. It was not sent. Write it on several lines: a line that ends "
    "with a backslash continues on the next one."
)
INLINE_BAD_JSON = "The arguments are not valid JSON: {error}. Write them again, or an empty line to go back."
INLINE_QUIT = "1, 2, 3, or Enter to stay: "
INLINE_NOTE = "note for the agent: "
