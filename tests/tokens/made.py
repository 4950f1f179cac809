"""Text that no person wrote, made up the same way each time: records, logs, tables, encodings,
listings.

Each kind comes in two dialects, one for each half of the corpus, so that what is fitted on the one
is not checked on its twin."""

import base64
import json
from collections.abc import Callable
from random import Random

WORDS = (
    (
        "account", "archive", "basket", "bridge", "cache", "carrier", "cluster", "default", "device", "engine",
        "export", "filter", "gateway", "handler", "import", "journal", "ledger", "monitor", "network", "order",
        "parser", "quota", "replica", "session", "storage", "ticket", "upload", "vendor", "worker", "zone",
    ),
    (
        "action", "backup", "branch", "channel", "client", "company", "counter", "customer", "deploy", "driver",
        "event", "folder", "graph", "history", "index", "invoice", "kernel", "library", "manager", "notify",
        "output", "payment", "query", "region", "schema", "shard", "sensor", "template", "user", "window",
    ),
)  # fmt: skip
NAMES = (
    ("Anneke", "Bartosz", "Chidi", "Deirdre", "Emre", "Fatima", "Giulia", "Hamish", "Ilse", "Joaquin"),
    ("Kofi", "Leila", "Magnus", "Noor", "Oksana", "Priya", "Ruben", "Siobhan", "Tomasz", "Yuki"),
)


def _id(chance: Random, digits: int) -> str:
    return f"{chance.getrandbits(4 * digits):0{digits}x}"


def _time(chance: Random) -> str:
    return f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}"


def _day(chance: Random) -> str:
    return f"20{chance.randrange(21, 27)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"


def records(chance: Random, half: int) -> str:
    """JSON, spread out or on one line."""
    words, names = WORDS[half], NAMES[half]
    found = [
        {
            "id": _id(chance, 12) if half else chance.randrange(10**6),
            "name": f"{chance.choice(words)}-{chance.choice(words)}",
            "owner": {"login": chance.choice(names).lower(), "admin": chance.random() < 0.3},
            "tags": [chance.choice(words) for _ in range(chance.randrange(4))],
            "updated_at": f"{_day(chance)}T{_time(chance)}Z",
            "score": round(chance.random() * 100, 2),
            "parent": None,
        }
        for _ in range(6)
    ]
    return json.dumps(found, separators=(",", ":")) if half else json.dumps(found, indent=2)


def logs(chance: Random, half: int) -> str:
    words = WORDS[half]
    lines: list[str] = []
    for _ in range(14):
        what, where = chance.choice(words), chance.choice(words)
        if half:
            lines.append(
                f"Mar {chance.randrange(1, 29):2} {_time(chance)} node{chance.randrange(9)} {where}d"
                f"[{chance.randrange(40000)}]: {what} refused from 10.{chance.randrange(256)}."
                f"{chance.randrange(256)}.{chance.randrange(256)}:{chance.randrange(65536)} "
                f"(uid={chance.randrange(2000)})"
            )
        else:
            level = chance.choice(("INFO ", "WARN ", "DEBUG", "ERROR"))
            lines.append(
                f"{_day(chance)}T{_time(chance)}.{chance.randrange(1000):03}Z {level} [{where}-"
                f"{chance.randrange(64)}] {what} request_id={_id(chance, 16)} took "
                f"{chance.randrange(9000)}ms bytes={chance.randrange(10**7)} "
                f"status={chance.choice((200, 404, 503))}"
            )
    return "\n".join(lines)


def sheet(chance: Random, half: int) -> str:
    """CSV, with a comma or a semicolon."""
    separator = ";" if half else ","
    columns = (
        ("date", "customer", "city", "net", "quantity") if half else ("sku", "name", "price", "stock", "added")
    )
    rows = [separator.join(columns)]
    for _ in range(18):
        name, word = chance.choice(NAMES[half]), chance.choice(WORDS[half])
        price = f"{chance.randrange(10**5) / 100:.2f}"
        cells = (
            (_day(chance), f'"{name} {word.title()}"', word.upper(), price.replace(".", ","), chance.randrange(50))
            if half
            else (f"{word[:3].upper()}-{chance.randrange(10**4):04}", f"{word} {name}", price, 0, _day(chance))
        )
        rows.append(separator.join(map(str, cells)))
    return "\n".join(rows)


def table(chance: Random, half: int) -> str:
    """Columns that are filled up with blanks, as terminals show them; with a frame, or without."""
    words = WORDS[half]
    rows = [
        (chance.choice(words), chance.randrange(10**5), f"{chance.random() * 100:.1f}%", chance.choice(NAMES[half]))
        for _ in range(12)
    ]
    if half:
        lines = [f"{'NAME':<16}{'PID':>8}{'CPU':>9}  OWNER"]
        return "\n".join(lines + [f"{a:<16}{b:>8}{c:>9}  {d.lower()}" for a, b, c, d in rows])
    rule = f"+{'-' * 14}+{'-' * 10}+{'-' * 9}+{'-' * 12}+"
    body = [f"| {a:<12} | {b:>8} | {c:>7} | {d:<10} |" for a, b, c, d in rows]
    return "\n".join([rule, *body, rule])


def encoded(chance: Random, half: int) -> str:
    """Base64, in lines or in one piece."""
    text = base64.b64encode(chance.randbytes(420)).decode()
    if half:
        return f"data:application/octet-stream;base64,{text}"
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----"


def dump(chance: Random, half: int) -> str:
    """Hexadecimal: what is in a file, or the checksums of many."""
    if half:
        return "\n".join(f"{_id(chance, 64)}  {chance.choice(WORDS[1])}.tar.gz" for _ in range(9))
    lines: list[str] = []
    for at in range(16):
        some = chance.randbytes(16)
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{at * 16:08x}  {some[:8].hex(' ')}  {some[8:].hex(' ')}  |{shown}|")
    return "\n".join(lines)


def paths(chance: Random, half: int) -> str:
    words = WORDS[half]
    lines: list[str] = []
    for _ in range(16):
        a, b, c, d = (chance.choice(words) for _ in range(4))
        if half:
            lines.append(f"./packages/{a}-{b}/node_modules/@{c}/{d}/dist/esm/{a}/{b}.{c}.test.d.ts")
        else:
            size = chance.randrange(10**6)
            lines.append(
                f"-rw-r--r-- 1 root root {size:>8} {_day(chance)} /usr/lib/python3/dist-packages/"
                f"{a}_{b}/{c}/_{d}_{chance.randrange(99)}.cpython-311-x86_64-linux-gnu.so"
            )
    return "\n".join(lines)


def minified(chance: Random, half: int) -> str:
    words, pieces = WORDS[half], list[str]()
    for _ in range(24):
        a, b, c = chance.choices("abcdefghijklmnopqrstuvwxyz", k=3)
        word, other = chance.choice(words), chance.choice(words)
        pieces.append(
            chance.choice(
                (
                    f"function {a}({b},{c}){{return {b}.{word}({c})||null}}",
                    f"var {a}={chance.randrange(999)},{b}=[],{c}=!0;",
                    f"{a}.prototype.{word}{other.title()}=function({b}){{this._{c}={b};return this}};",
                    f'if({a}&&!{b}["{word}"]){{throw new Error("{other}")}}',
                )
                if half
                else (
                    f"const {a}=({b})=>{b}?.{word}??{c};",
                    f"for(let {a}=0;{a}<{b}.length;{a}++){c}.push({b}[{a}].{word});",
                    f".{word}-{other}{{margin:0 {chance.randrange(40)}px;color:#{_id(chance, 6)}}}",
                    f'export{{{a} as {word},{b} as {other}}};import {c} from"./{word}.js";',
                )
            )
        )
    return "".join(pieces)


def sequences(chance: Random, half: int) -> str:
    """Letters that are no words: genes, and keys in base32."""
    lines: list[str] = []
    for _ in range(6):
        if half:
            key = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz234567", k=56))
            lines.append(f"{chance.choice(WORDS[1])}: {key}.onion")
        else:
            lines.append(f">{chance.choice(WORDS[0])}_{chance.randrange(999)}")
            lines += ("".join(chance.choices("acgt", k=60)) for _ in range(2))
    return "\n".join(lines)


MADE: dict[str, Callable[[Random, int], str]] = {
    "json": records, "logs": logs, "csv": sheet, "table": table, "base64": encoded, "hex": dump, "paths": paths,
    "minified": minified, "sequences": sequences,
}  # fmt: skip
