"""The words and patterns that code and pages must not contain, and a command that finds them.

    python -m tests.words [PATH...]     print each hit below these files and folders (default: everything)
    python -m tests.words --count       print the number of hits in each area

`tests/unit/test_words.py` holds the areas to this list. It reads docstrings, comments and messages of programs, the
comments of data files, and the pages. Code in backticks and code blocks of pages (except comments) are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

FOLDERS = ("surreal", "docs", "benchmarks", "clients", "examples", "k8s", "scripts")
FILES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "Makefile",
    "README.md",
    "compose.yaml",
    "mkdocs.yml",
    "pyproject.toml",
    "setup.py",
)
SUFFIXES = (".py", ".lua", ".yaml", ".md", ".sh", ".mjs", ".cpp", ".hpp")

GENERATED = {f"docs/{name}.md" for name in ("configuration", "doctor", "many-runs", "options", "redis-keys")}
"""Pages whose text, in whole or in part, is written by `make docs` from the code."""


class Rule(NamedTuple):
    """A pattern, and the better wording.

    Attributes:
        pattern: Regular expression that starts and ends with a word; case does not matter, and a space matches
            any white space.
        better: Wording to use in its place, for the test's message.
    """

    pattern: str
    better: str


class Hit(NamedTuple):
    """Words found at a place, with the better wording."""

    path: str
    line: int
    words: str
    better: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words!r}: {self.better}"


class Text(NamedTuple):
    """Prose of one docstring, comment, message or page.

    Attributes:
        kind: One of `docstring`, `comment`, `message`, `help` and `page`.
        lines: Number of the line in the file for each line of `text`.
        owner: Names of a docstring's function and its parameters, or its class, after the classes around it;
            "" for a module.
        is_boolean: Whether the owner returns a truth value, so that "Whether" may open its docstring.
    """

    kind: str
    text: str
    lines: list[int]
    owner: str = ""
    is_boolean: bool = False


_BE = "(?:is|are|was|were|be|been|being)"
_LATIN_ISE = (
    "apolog|author|capital|categor|central|character|critic|custom|decentral|discret|emphas|equal|factor|final|formal|"
    "general|global|harmon|ideal|initial|item|legal|local|material|maxim|memor|minim|modern|neutral|normal|optim|organ|"
    "parallel|parameter|penal|personal|popular|priorit|quant|random|real|recogn|regular|reparameter|sanit|serial|"
    "special|stabil|standard|summar|symbol|synchron|token|util|vector|visual"
)

RULES = (
    # private words
    Rule(r"of (?:its|his|her|their|your|our|my|one's) own", "'its own X', or only 'X' or 'a separate X'"),
    Rule(r"of (?:a|the) \w+'s own", "'the run's own X'"),
    Rule(
        r"(?:go|goes|gone) on(?! (?:the|a|an|port) )|went on(?! (?:the|a|an) )|going on", "'continue', 'resume', 'run'"
    ),
    Rule(r"anew|afresh", "'again', 'from scratch'"),
    Rule(r"beside", "'next to', 'compared with', 'along with', 'also'"),
    Rule(r"besides(?=[.,;:)\n]|$)", "'also', 'as well'"),
    Rule(r"for ever|for evermore", "'forever'"),
    Rule(r"nobody|no one(?! of)", "'no process', 'no client', 'no user'"),
    Rule(r"somebody|everybody|anybody", "name the process, client or user"),
    Rule(r"whoever|whomever|whosoever|whom|whomsoever", "name the process, client or user"),
    Rule(
        r"who (?:waits|acts|publishes|learns|owns|sends|writes|reads|holds|takes|wants|asks|dies)", "name the process"
    ),
    Rule(
        rf"(?<!there )(?<!there would )(?<!there can )(?<!there will )(?<!there may )(?<!there must )(?<!there has )"
        rf"{_BE} no (?!(?:longer|more|fewer|less|later|earlier|greater|larger|bigger|smaller|better|worse|slower|"
        r"faster|different|higher|lower|shorter|older|newer|sooner|one|use|reason|point|need|way|doubt|such|limit)\b)\w+",
        "'is not a X', 'has no X', 'no X is'",
    ),
    Rule(
        r"(?<=, )for (?:it|he|she|they|we|you|there|this|that|these|those|nothing|no \w+|its \w+|their \w+|the \w+|"
        r"an? \w+|each \w+|every \w+|all \w+|one|both|neither|only|what|who) "
        r"(?:itself |only |then |also |often |never |always )?"
        r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|could|may|might|must|will|would|should|needs?|takes?|"
        r"comes?|goes|gives?|makes?|holds?|knows?|keeps?|counts?|asks?|sends?|reads?|waits?|fails?|learns?|knows)",
        "'because'",
    ),
    Rule(
        r"sa(?:y|ys|id|ying) (?:how|who|what|which|where|when|whether|why)",
        "'shows', 'reports', 'states', 'explains', 'names'",
    ),
    Rule(r"(?:say|says|said|saying) (?:of|about) (?:itself|themselves|it|them)", "'report'"),
    Rule(r"signs? of (?:its |their )?life", "'heartbeat', 'activity'"),
    Rule(r"rooms", "'subpackages'; or 'space'"),
    Rule(
        r"ours|(?:of|is|are) (?:yours|theirs|mine|hers)|(?:class|function|object|program)(?:es|s)? of your own",
        "'built-in'; 'your class'",
    ),
    Rule(r"the ancestors?|the ancestor's", "'RELAAX'"),
    Rule(r"at play", "'while it plays'"),
    Rule(r"at one sight", "'at a glance'"),
    Rule(r"(?:hold|holds|held|holding) (?:nobody|others|the others|anyone|no process|it|them) up", "'delay', 'block'"),
    Rule(r"no more(?=[.,;:)]|$)|no more (?:while|until|when|after|since|by|in)", "'no longer', 'not ... anymore'"),
    Rule(r"any more(?=[.,;:)]|$)", "'anymore', 'no longer'"),
    Rule(
        r"(?:stays?|stayed|copied|kept|left|taken|taken over|counts|handed over|returned|written|sent|passed|given|"
        r"stored) as (?:it is|they are)",
        "'unchanged'",
    ),
    Rule(r"holds for (?:the|all|each|every|any|both|them|it)", "'applies to'"),
    Rule(r"(?:become|becomes|became|come|comes|came) of", "'happens to', 'results from'"),
    Rule(r"(?:hear|hears|heard) of", "'receives', 'learns of'"),
    Rule(r"let (?:everyone|everybody|others|them|the others|all) have", "'publish', 'send'"),
    Rule(r"(?:let|lets|letting) go of", "'release', 'drop'"),
    Rule(r"for the time of", "'during', 'while'"),
    Rule(
        r"so many (?!\w+ (?:that|of|as)\b)\w+(?=[.,;:)]|$| (?:in|each|to|for|and|from|or|before)\b)",
        "'this many', or the number's name",
    ),
    Rule(r"(?:is|are|all is|was) well(?=[.,;:)]|$)", "'is healthy', 'works'"),
    Rule(r"(?:take|takes|took|taken) nothing(?: more)?", "'does not accept', 'is full'"),
    Rule(r"(?:that|which) (?:is|are|was|were) there(?! for\b)", "'existing', 'present', 'that exists'"),
    Rule(r"what (?:is there|there is)", "'existing', 'available', 'whatever exists'"),
    Rule(r"at work", "'running', 'busy'"),
    Rule(r"at large", "'in general'"),
    Rule(
        r"upon|thereof|therein|thereby|whence|whilst|amongst|lest|hence|ere|till|albeit|nought|naught|unto",
        "the plain word",
    ),
    Rule(r"shall", "'will', 'must'"),
    Rule(r"in its (?:stead|place of)", "'instead'"),
    Rule(r"the like(?=[.,;:)]|$)", "name them, or 'and similar X'"),
    Rule(r"of (?:itself|themselves|himself)", "'its own', 'by itself'"),
    Rule(r"the other way round|way round", "'the other way around', 'the reverse'"),
    Rule(r"keeps? score", "'scores the policy'"),
    Rule(r"round and round", "'the loop'"),
    Rule(r"forgives?", "'is robust to', 'tolerates'"),
    Rule(r"learns? not|knows? not|needs not|acts? not|does nothing but", "'does not learn'"),
    Rule(r"does nothing loses|who does nothing", "name the policy"),
    Rule(r"signs?-of-life|life sign", "'heartbeat'"),
    Rule(r"spreads? news|tells? the news", "'propagates'"),
    Rule(r"(?:is|are) none of (?:it|them|ours|its)", "'is not one of them'"),
    Rule(r"(?:and|or) be done(?: with)?|make do with", "the plain verb"),
    Rule(r"by (?:no|any) means", "'not at all'"),
    Rule(r"as well as it can", "'greedily', 'as well as possible'"),
    Rule(r"without a word of", "'with no other message'"),
    Rule(r"in vain", "'without success'"),
    Rule(r"dies? away|by and by|once and again", "the plain word"),
    # British spelling
    Rule(
        r"(?:un|dis)?(?:colour|behaviour|favour|neighbour|honour|flavour|labour|humour|rumour|harbour|endeavour|vapour)\w*",
        "American spelling: -or",
    ),
    Rule(
        rf"(?:un|re|de)?(?:{_LATIN_ISE})is(?:e|ed|es|er|ers|ing|ation|ations|able)",
        "American spelling: -ize",
    ),
    Rule(r"(?:analys|catalys|paralys)(?:e|ed|er|ing)", "American spelling: -yze"),
    Rule(
        r"(?:un|re|re-)?(?:cancel|label|model|travel|signal|level|total|channel|fuel|tunnel|marshal|initial|dial)l(?:ed|er|ers|ing)",
        "American spelling: one l",
    ),
    Rule(r"centr(?:e|es|ed|ing)|fibres?|theatres?|metres|metre|litres?", "American spelling: -er"),
    Rule(r"licences?|defences?|offences?|pretences?", "American spelling: -se"),
    Rule(r"practis(?:e|ed|es|ing)", "American spelling: practice"),
    Rule(r"grey(?:s|er|ed)?|greyscale", "American spelling: gray"),
    Rule(r"towards", "American spelling: toward"),
    Rule(
        r"artefacts?|judgements?|ageing|cheques?|programmes?|sceptic\w*|mould\w*|fulfil|fulfils|skilful|enrol|ploughs?",
        "American spelling",
    ),
    Rule(r"learnt|burnt|spelt|dreamt|leapt|maths", "American spelling: learned, burned, spelled, math"),
)

PAST_CODE = (
    Rule(
        r"(?:^|(?<=[.;:] )|(?<=\n- ))(?:what|which|how|who|where|why|whether|when)\b[^.;:?|]{3,160}? "
        r"(?:says?|shows?|tells?|lists?|decides?|explains?|describes?|names?|is in|are in|is on|stands? in|stands? on|"
        r"says so in|does|gives) (?:in |on )?(?:the page )?(?:`[^`\n]*`|\[[^\]]{1,60}\](?:\([^)]*\))?)(?=[.;,:)]|$)",
        "no inversion: '`doctor` shows which side is slow'",
    ),
)
"""Rules that may meet code in backticks."""

OPENINGS = re.compile(r"(?:What|Who|Whom|Whose|Which|Where|How|Why|Whether|Of|That which|Those that|Those who|As)\b")
HEADLESS = re.compile(
    r"(?:(?:^|(?<=[.:;] ))Of (?:the|each|a|an|all|some|every|whom|what|whose|both|it|its|them|two|one)\b[^.,;:]*)"
    r"|(?:(?<=\n)[ ]+\**[a-z]\w*: (?:of|whose|whom|who|as)\b(?! usual| follows| of| many| much| long)[^.,;:\n]*)"
)
SUMMARIES = {
    "Give": "'Return', 'Build'",
    "Say": "'Report', 'Print', 'Log'",
    "Have": "an imperative that names the action",
    "Go": "an imperative that names the action: 'Continue', 'Run'",
    "Do": "an imperative that names the action",
    "Let": "an imperative that names the action: 'Allow', 'Release', 'Publish'",
    "Note": "'Record', 'Store'",
    "Become": "an imperative that names the action",
}
"""First words of a function's summary that name no action."""

_FILLER = frozenset(
    re.findall(
        r"\w+",
        "a an the of it its this that these all to is are be and or in on for from by with as at return give get make "
        "do one self itself own new each some any whether there",
    )
)
_CODE = re.compile(r"(`+)[^`]*\1")
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*(?=[-*|#>]|\d+\.\s|\**\w+: )|\s\|\s|^\||\n\|")
_CITATIONS = re.compile(r"\([^()]*\b(?:et al\.|(?:19|20)\d\d)[^()]*\)")


def _joined(rules: tuple[Rule, ...], start: str, end: str) -> re.Pattern[str]:
    """Join the rules into one expression, in which a space matches any white space."""
    parts = []
    for number, rule in enumerate(rules):
        pieces = re.split(r"(\(\?<[=!][^()]*\))", rule.pattern)  # a lookbehind needs a fixed width
        spaces = (piece.replace(" ", r"\s" if piece.startswith("(?<") else r"\s+") for piece in pieces)
        parts.append(f"(?P<r{number}>{''.join(spaces)})")
    return re.compile(f"{start}(?:{'|'.join(parts)}){end}", re.IGNORECASE)


_WORDS = _joined(RULES, r"\b", r"\b")
_PAST_CODE = _joined(PAST_CODE, "", "")


def areas() -> dict[str, list[Path]]:
    """Return the files of each area: a package, the presets, another folder, or a file of the root."""
    files = [path for name in FOLDERS for path in sorted((ROOT / name).rglob("*.*")) if path.suffix in SUFFIXES]
    found: dict[str, list[Path]] = {}
    for path in [*files, *(ROOT / name for name in FILES)]:
        found.setdefault(_area(path), []).append(path)
    return found


def _area(path: Path) -> str:
    name = path.relative_to(ROOT)
    if name.as_posix() in GENERATED:
        return "docs, generated"
    if name.parts[:3] == ("surreal", "config", "presets"):
        return "surreal/config/presets"
    return "/".join(name.parts[:2]) if len(name.parts) > 2 else name.parts[0]


def find_hits(path: Path) -> list[Hit]:
    """Return the hits in a file, in the order of their lines."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
    hits = [Hit(name, line, words, better) for text in read_texts(path) for line, words, better in check(text)]
    return sorted(hits, key=lambda hit: hit.line)


def read_texts(path: Path) -> Iterator[Text]:
    """Yield the prose of a Python file, a data file with comments, or a page."""
    source = path.read_text()
    match path.suffix:
        case ".py":
            yield from _texts_of_python(source)
        case ".md":
            yield from _texts_of_page(source)
        case ".lua":
            yield from _comments(source, re.compile(r"^\s*--|\s--\s"), set())
        case ".mjs" | ".cpp" | ".hpp":
            yield from _comments(_without_code(source), re.compile(r"^\s*(?://|/?\*+)|\s//\s"), set())
        case _:
            yield from _comments(source, re.compile(r"^\s*#|\s#\s"), set())


def _without_code(source: str) -> str:
    """Blank the types and the sample code in comments of C++ and JavaScript; the lines keep their numbers."""
    source = re.sub(r"@\w+|\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}(?= )", ".", source)
    return re.sub(r"(?m)^\s*(?://|\*) {4,}.*$", "// .", source)


def check(text: Text) -> Iterator[tuple[int, str, str]]:
    """Yield line, words and better wording of each hit in a text."""
    prose = _CODE.sub(lambda match: "`" + re.sub(r"[^\n]", "_", match[0][1:-1]) + "`", text.text)

    def hit(start: int, words: str, better: str) -> tuple[int, str, str]:
        return text.lines[min(prose.count("\n", 0, start), len(text.lines) - 1)], " ".join(words.split()), better

    for expression, rules in (_WORDS, RULES), (_PAST_CODE, PAST_CODE):
        for match in expression.finditer(prose):
            number = int((match.lastgroup or "r0")[1:])
            yield hit(match.start(), text.text[match.start() : match.end()], rules[number].better)
    for match in HEADLESS.finditer(prose):
        if match[0].lstrip().startswith("Of") or text.kind == "docstring":
            yield hit(match.end() - 1, match[0], "a noun phrase names its noun: 'x: Y of the Z'")
    if text.kind in ("docstring", "help"):
        summary = re.sub(r"^`[^`]*`: ", "", text.text)
        first = summary.partition(" ")[0]
        if (opening := OPENINGS.match(summary)) and not (opening[0] == "Whether" and text.is_boolean):
            yield hit(0, opening[0], "open with a noun phrase, or an imperative for a function")
        elif text.kind == "docstring" and text.owner and first in SUMMARIES:
            yield hit(0, first, SUMMARIES[first])
        if text.owner and _repeats(text):
            yield hit(
                0, text.text.strip(), "only repeats the name: state what the name and types do not, or leave it out"
            )
    yield from (hit(start, words, "a sentence has at most one semicolon") for start, words in _chains(prose))


def _repeats(text: Text) -> bool:
    if len(text.text.strip().splitlines()) > 1 or "`" in text.text:
        return False
    said = re.findall(r"[a-z0-9]+", text.text.lower())
    named = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", text.owner)
    return {_stem(word) for word in said if word not in _FILLER} <= {_stem(word.lower()) for word in named}


def _stem(word: str) -> str:
    return word if len(word) < 4 else re.sub(r"(?:ings?|ies|ied|es|ed|e|s|y)$", "", word)


def _chains(prose: str) -> Iterator[tuple[int, str]]:
    """Yield start and first words of each sentence with more than one semicolon."""
    if prose.count(";") < 2:
        return
    start = 0
    for end in [match.start() for match in _SENTENCE_END.finditer(prose)] + [len(prose)]:
        sentence = prose[start:end]
        clauses = re.split(r";\s", _CITATIONS.sub("", sentence))
        if sum(len(re.findall(r"[A-Za-z]{2,}", clause)) > 3 for clause in clauses) > 2 and "{ " not in sentence:
            begin = start + len(sentence) - len(sentence.lstrip())
            yield begin, sentence.strip()[:60] + "..."
        start = end


def _texts_of_python(source: str) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings: dict[int, Text] = {}
    helps: set[int] = set()
    parts: set[int] = set()
    literals: list[ast.Constant | ast.JoinedStr] = []
    for node, owner in _walk_with_owner(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (body := node.body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                value = body[0].value
                if isinstance(value.value, str):
                    is_boolean = ast.unparse(node.returns) == "bool" if getattr(node, "returns", None) else False
                    docstrings[id(value)] = Text("docstring", value.value, [], owner, is_boolean)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description", "short_help"):
            helps.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            parts.update(id(value) for value in node.values)
            literals.append(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            literals.append(node)
    inside: set[int] = set()
    for literal in literals:
        if id(literal) in parts:
            continue
        first, last = literal.lineno, literal.end_lineno or literal.lineno
        inside.update(range(first + 1, last + 1))
        text = docstrings.get(id(literal))
        value = _value(literal)
        if text is None and not re.search(r"[A-Za-z]\s+[A-Za-z`({]", value):
            continue
        numbers = _line_numbers(value, first, last)
        kind = "help" if id(literal) in helps else "message"
        yield text._replace(lines=numbers) if text else Text(kind, value, numbers, is_boolean=kind == "help")
    spans = [(node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0) for node in literals]
    yield from _comments(source, re.compile(r"^\s*#|\s#\s"), inside, spans)


def _walk_with_owner(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield each node with the owner of its docstring; see `Text`."""
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, outer = waiting.pop()
        owner = ""
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            owner = f"{outer} {node.name}".strip()
            outer = owner if isinstance(node, ast.ClassDef) else ""
            if not isinstance(node, ast.ClassDef):
                owner += " " + " ".join(argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))
        yield node, owner
        waiting.extend((child, outer) for child in ast.iter_child_nodes(node))


def _value(literal: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(literal, ast.Constant):
        return str(literal.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in literal.values)


def _line_numbers(value: str, first: int, last: int) -> list[int]:
    """Return the line of each line of a literal: of a concatenated one, that of its start."""
    numbers = list(range(first, last + 1))
    return numbers if value.count("\n") == last - first else [first] * (value.count("\n") + 1)


def _comments(
    source: str, mark: re.Pattern[str], inside: set[int], spans: list[tuple[int, int, int, int]] | None = None
) -> Iterator[Text]:
    """Yield the comments of a file; those on lines in a row are one text.

    Args:
        source: Text of the file.
        mark: Expression for the start of a comment, with its white space.
        inside: Numbers of lines that begin within a literal.
        spans: First line and column, and last line and column, of each literal.
    """
    block: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        for match in mark.finditer(line):
            column = match.end() - 1
            is_whole = not line[: match.start()].strip() and number not in inside
            if is_whole or not any(_is_within(number, column, span) for span in spans or ()):
                break
        else:
            continue
        words = line[match.end() :].strip()
        if block and (number != block[-1][0] + 1 or not is_whole):
            yield Text("comment", "\n".join(text for _, text in block), [there for there, _ in block])
            block = []
        if words:
            block.append((number, words))
    if block:
        yield Text("comment", "\n".join(text for _, text in block), [there for there, _ in block])


def _is_within(line: int, column: int, span: tuple[int, int, int, int]) -> bool:
    return (span[0], span[1]) <= (line, column) < (span[2], span[3])


def _texts_of_page(source: str) -> Iterator[Text]:
    lines, fence, is_hidden = source.splitlines(), "", False
    for number, line in enumerate(lines):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            comment = re.search(r"(?:^|\s)#+\s(.*)", line)
            lines[number] = f"\n{comment[1]}\n".strip("\n") + "." if comment and not mark else "."
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence, lines[number] = mark[1], "."
        else:
            if "<!--" in line:
                is_hidden = "-->" not in line
                lines[number] = line.partition("<!--")[0]
            elif is_hidden:
                is_hidden, lines[number] = "-->" not in line, ""
            lines[number] = re.sub(r"(?<=\])\([^)]*\)|<[^>]*>", "", lines[number])
    yield Text("page", "\n".join(lines), list(range(1, len(lines) + 1)))


def main(arguments: list[str]) -> int:
    """Print the hits below the paths, or with --count their number in each area."""
    if "--count" in arguments:
        for area, files in sorted(areas().items()):
            print(f"{sum(len(find_hits(path)) for path in files):6}  {area}")
        return 0
    paths = [Path(argument).resolve() for argument in arguments]
    files = [path for found in areas().values() for path in found]
    if paths:
        files = [path for path in files if any(path.is_relative_to(wanted) for wanted in paths)]
        files += [path for path in paths if path.is_file() and path not in files]
    hits = [hit for path in sorted(files) for hit in find_hits(path)]
    print(*hits, sep="\n")
    kinds = Counter(hit.better for hit in hits)
    print(
        f"{len(hits)} hits in {len({hit.path for hit in hits})} of {len(files)} files",
        *kinds.most_common(5),
        sep="\n    ",
    )
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
