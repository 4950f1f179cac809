"""Takes secrets out of texts, whole or in pieces: what `forms` knows and `scanning` finds becomes a mark."""

from collections.abc import Iterable, Mapping

from treadle.ports.vault import Redaction
from treadle.vault.encoded_forms import decoded_forms_of, forms_of, has_tail
from treadle.vault.scanner import DecodedReading, Find, Form, Index, PlainReading, TextReading

MARK = "[redacted:{name}]"
NAMELESS = "[redacted]"
_SIGNS = "█▓▒░■●◆"
_PRIVATE_USE = range(0xE000, 0xF900)


class SecretRedactor:
    """Implements `ports.vault.Redactor`. Frozen: a vault that has changed has another one.

    Finds may overlap: what any of them covers is hidden, under the name of the longest."""

    def __init__(self, secrets: Iterable[tuple[str, str]]) -> None:
        """Of names and values; a name may come with several."""
        known: dict[str, Form] = {}
        decoded: dict[str, Form] = {}
        names: dict[str, None] = {}
        for name, value in sorted(set(secrets)):
            names[name] = None
            tailed = has_tail(value)
            for text in forms_of(value):
                known.setdefault(text, Form(text, name, text in tailed))
            for text, tail in decoded_forms_of(value).items():
                decoded.setdefault(text, Form(text, name, tail))
        self._plain = Index(known.values())
        self._decoded = Index(decoded.values())
        self._marks = {name: _safe_mark(name, {**known, **decoded}) for name in names}
        self.is_idle = not known

    @property
    def longest(self) -> int:
        """No text is held back that is longer than this."""
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

    Holds the text from where a form may have begun. Finds that are not over yet are held as places, not as text, so
    that a secret that repeats for ever takes no more room than once."""

    def __init__(self, marks: Mapping[str, str], readings: Iterable[TextReading]) -> None:
        self._marks = marks
        self._readings = [reading for reading in readings if not reading.is_idle]
        self.held = ""
        self._finds: list[Find] = []
        """Those that reach into what is held, disjoint; the first may have begun before it."""
        self.names: dict[str, None] = {}

    def feed(self, piece: str) -> str:
        if not self._readings:
            return piece
        text = self.held + piece
        certain = len(text)
        for reading in self._readings:
            finds, begun = reading.read(text, piece)
            if finds:
                self._finds += finds
            if begun < certain:
                certain = begun
        return self._let_out(text, certain)

    def flush(self) -> str:
        return self._let_out(self.held, len(self.held))

    def _let_out(self, text: str, certain: int) -> str:
        """The text up to where all is certain, with marks; the rest is held."""
        before, self.held = text[:certain], text[certain:]
        for reading in self._readings:
            reading.let_go(before, self.held)
        return self._marked(text, certain) if self._finds else before

    def _marked(self, text: str, certain: int) -> str:
        shown: list[str] = []
        at = 0
        self._finds = _joined(self._finds)
        open_finds: list[Find] = []
        for find in self._finds:
            if find.end > certain:
                open_finds.append(find)
                continue
            shown += (text[at : max(find.start, at)], self._marks[find.form.name])
            self.names.setdefault(find.form.name)
            at = find.end
        hidden_from = open_finds[0].start if open_finds else certain
        shown.append(text[at : max(at, min(certain, hidden_from))])
        self._finds = [Find(find.start - certain, find.end - certain, find.form) for find in open_finds]
        return "".join(shown)


def _joined(finds: list[Find]) -> list[Find]:
    """Finds that overlap, as one under the name of the longest form."""
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


def _safe_mark(name: str, forms: Iterable[str]) -> str:
    """What is shown instead. It must not bring a secret back, by itself or with what stands beside it."""
    for mark in (MARK.format(name=name), NAMELESS):
        if not any(_brings_back(mark, form) for form in forms):
            return mark
    used = set[str]().union(*forms)
    return next(sign for sign in (*_SIGNS, *map(chr, _PRIVATE_USE)) if sign not in used)


def _brings_back(mark: str, form: str) -> bool:
    if form in mark or mark in form:
        return True
    if mark[0] not in form and mark[-1] not in form:
        return False
    shorter = range(1, min(len(mark), len(form)) + 1)
    return any(form.endswith(mark[:size]) or form.startswith(mark[-size:]) for size in shorter)
