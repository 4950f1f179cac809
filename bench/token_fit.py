"""Fits the weights of `core.tokens` to what the embedded model counts for the texts of half the corpus.

Least squares on relative errors, with a lower limit for each weight. The prior keeps the weight of a script that
the texts hardly contain at the value of similar tokenizers."""

from collections.abc import Iterable

from tests.tokens.measure import Counter
from tests.tokens.sessions import FIT, sessions

from treadle.core.context.tokens import A_RUN, A_WORD, BEFORE_A_NUMBER, CLASSES, SIGNS, count_runs
from treadle.domain.messages import Text, ToolUse

ROUNDS = 400
PRIOR = 0.3
"""How much the current weight of a class counts."""
MIN_WEIGHTS = {"blank": 0.02, "control": 0.1}


def count_features(text: str) -> list[int]:
    data = text.encode("utf-8", "surrogatepass")
    return [*(sum(map(data.count, kind.members)) for kind in CLASSES), *count_runs(data)]


def fit_weights(rows: list[list[int]], tokens: list[int], prior: list[float], least: list[float]) -> list[float]:
    """Set one weight after the other to its best value, repeatedly."""
    size = range(len(prior))
    scale = [1 / max(count, 20) ** 1.5 for count in tokens]
    square = [
        [sum((s * row[i] * row[j] for row, s in zip(rows, scale, strict=True)), PRIOR * (i == j)) for j in size]
        for i in size
    ]
    right = [
        sum((s * row[i] * n for row, n, s in zip(rows, tokens, scale, strict=True)), PRIOR * prior[i]) for i in size
    ]
    weights = prior.copy()
    for _ in range(ROUNDS):
        for i in size:
            rest = sum(square[i][j] * weights[j] for j in size if j != i)
            weights[i] = max(least[i], (right[i] - rest) / square[i][i])
    return weights


def collect_texts() -> Iterable[str]:
    """Return everything said, called and returned in the sessions for this purpose."""
    for session in sessions():
        if session.half == FIT:
            for turn in session.turns:
                yield from turn.results
                if turn.asked:
                    yield turn.asked
                for part in turn.reply:
                    if isinstance(part, Text):
                        yield part.text
                    elif isinstance(part, ToolUse):
                        yield part.arguments


async def fit_corpus(count: Counter) -> dict[str, float]:
    """Return each weight by name."""
    names = [*(kind.name for kind in CLASSES), "A_WORD", "A_RUN", "SIGNS", "BEFORE_A_NUMBER"]
    prior = [*(kind.tokens for kind in CLASSES), A_WORD, A_RUN, SIGNS, BEFORE_A_NUMBER]
    rows: list[list[int]] = []
    tokens: list[int] = []
    for text in collect_texts():
        rows.append(count_features(text))
        tokens.append(await count.tokens(text))
    return dict(
        zip(names, fit_weights(rows, tokens, prior, [MIN_WEIGHTS.get(name, 0.0) for name in names]), strict=True)
    )
