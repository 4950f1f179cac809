"""Redacts secrets in texts, whole or streamed: forms from `encoded_forms` that `scanner` finds are replaced by a
mark."""

from collections.abc import Iterable, Mapping

from treadle.ports.vault import Redaction
from treadle.vault.canonical import fold_case
from treadle.vault.encoded_forms import list_decoded_forms, list_forms, list_tailed_forms
from treadle.vault.scanner import DecodedReading, Find, Form, Index, PlainReading, TextReading

MARK = "[redacted:{name}]"
NAMELESS = "[redacted]"
_SIGNS = "█▓▒░■●◆"
_PRIVATE_USE = range(0xE000, 0xF900)


class SecretRedactor:
    """Implements `ports.vault.Redactor`. Immutable: a changed vault gets a new one.

    Finds may overlap: everything that any of them covers is hidden, under the name of the longest."""

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        """Take pairs of names and values. A name may have several values."""
        known: dict[str, Form] = {}
        decoded: dict[str, Form] = {}
        names: dict[str, None] = {}
        for name, value in sorted(set(secrets)):
            names[name] = None
            tailed_forms = list_tailed_forms(value)
            for text in list_forms(value):
                known.setdefault(text, Form(text, name, text in tailed_forms))
            for form, tail in list_decoded_forms(value).items():
                text = fold_case(form)
                decoded.setdefault(text, Form(text, name, tail))
        self._plain = Index(known.values())
        self._decoded = Index(decoded.values())
        self._marks = {name: _choose_mark(name, {**known, **decoded}) for name in names}
        self.is_idle = not known

    @property
    def longest(self) -> int:
        """The most text that a stream holds back."""
        return max(self._plain.longest, self._decoded.longest * DecodedReading.STRETCH)

    def redact(self, text: str) -> Redaction:
        if self.is_idle:
            return Redaction(text)
        stream = self.stream()
        shown = stream.feed(text) + stream.flush()
        return Redaction(shown, tuple(stream.names)) if stream.names else Redaction(text)

    def stream(self) -> "SecretStream":
        return SecretStream(self._marks, (PlainReading(self._plain), DecodedReading(self._decoded)))


class SecretStream:
    """Implements `ports.vault.TextStream`.

    Holds back text from where a form may have begun. Unfinished finds are stored as positions, not as text, so that
    a secret that repeats endlessly needs no more memory than one."""

    def __init__(self, marks: Mapping[str, str], readings: Iterable[TextReading]) -> None:
        self._marks = marks
        self._readings = [reading for reading in readings if not reading.is_idle]
        self.held = ""
        self._finds: list[Find] = []
        """Finds that reach into the held text, disjoint. The first may start before it."""
        self.names: dict[str, None] = {}

    def feed(self, piece: str) -> str:
        if not self._readings:
            return piece
        text = self.held + piece
        stable_end = len(text)
        for reading in self._readings:
            finds, start = reading.read(text, piece)
            if finds:
                self._finds += finds
            if start < stable_end:
                stable_end = start
        return self._release(text, stable_end)

    def flush(self) -> str:
        for reading in self._readings if self.held else ():
            self._finds += reading.read(self.held, "", is_last=True)[0]
        return self._release(self.held, len(self.held))

    def _release(self, text: str, stable_end: int) -> str:
        """Return the text up to `stable_end` with marks, and hold the rest."""
        before, self.held = text[:stable_end], text[stable_end:]
        for reading in self._readings:
            reading.discard(before, self.held)
        return self._insert_marks(text, stable_end) if self._finds else before

    def _insert_marks(self, text: str, stable_end: int) -> str:
        shown: list[str] = []
        at = 0
        self._finds = _merge_finds(self._finds)
        open_finds: list[Find] = []
        for find in self._finds:
            if find.end > stable_end:
                open_finds.append(find)
                continue
            shown += (text[at : max(find.start, at)], self._marks[find.form.name])
            self.names.setdefault(find.form.name)
            at = find.end
        hidden_from = open_finds[0].start if open_finds else stable_end
        shown.append(text[at : max(at, min(stable_end, hidden_from))])
        self._finds = [Find(find.start - stable_end, find.end - stable_end, find.form) for find in open_finds]
        return "".join(shown)


def _merge_finds(finds: list[Find]) -> list[Find]:
    """Merge overlapping finds into one under the name of the longest form."""
    if len(finds) < 2:
        return finds
    joined: list[Find] = []
    for find in sorted(finds):
        if joined and find.start < joined[-1].end:
            last = joined[-1]
            best = max(last.form, find.form, key=lambda form: (len(form.text), form.name))
            joined[-1] = Find(last.start, max(last.end, find.end), best)
        else:
            joined.append(find)
    return joined


def _choose_mark(name: str, forms: Iterable[str]) -> str:
    """Return the replacement text. It must not reveal a secret, alone or together with the text around it."""
    for mark in (MARK.format(name=name), NAMELESS):
        if not any(_could_reveal(mark, form) for form in forms):
            return mark
    used = set[str]().union(*forms)
    return next(sign for sign in (*_SIGNS, *map(chr, _PRIVATE_USE)) if sign not in used)


def _could_reveal(mark: str, form: str) -> bool:
    if form in mark or mark in form:
        return True
    if mark[0] not in form and mark[-1] not in form:
        return False
    shorter = range(1, min(len(mark), len(form)) + 1)
    return any(form.endswith(mark[:size]) or form.startswith(mark[-size:]) for size in shorter)
