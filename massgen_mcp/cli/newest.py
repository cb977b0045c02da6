"""The newest line of what each agent's model streams: its words, also where it streams JSON."""

import time
from dataclasses import dataclass, field

from massgen_mcp.cli.wording import plain
from massgen_mcp.providers.letters import whole_letters

TAIL_CHARS = 2000
SILENT_KEYS = frozenset({"action", "agent_id", "id", "name", "path", "runner_up", "type"})
"""Keys of calls and replies whose values are no words for an onlooker."""

ESCAPES = {"n": "\n", "r": "\n", "t": "\t", "b": " ", "f": " "}
LITERALS = frozenset("truefalsn0123456789+-.eE")
DEEPEST = 100
LONGEST_KEY = 200


class NewestLines:
    """The newest line of what each agent's model streams, and when it was heard."""

    def __init__(self) -> None:
        self.tails: dict[str, str] = {}
        self.heard: dict[str, float] = {}
        """Seconds since the epoch."""
        self._unwrapping: dict[str, _Unwrapping] = {}

    def hear(self, label: str, piece: str) -> None:
        """Take a piece of streamed text in."""
        words = self._unwrapping.setdefault(label, _Unwrapping()).take(piece)
        self.tails[label] = (self.tails.get(label, "") + words)[-TAIL_CHARS:]
        self.heard[label] = time.time()

    def read(self) -> dict[str, str]:
        """The last line of each agent that is not blank."""
        # A copy: the agents go on talking while another thread reads.
        return {label: _last_line(tail) for label, tail in list(self.tails.items())}


def _last_line(tail: str) -> str:
    lines = [line for line in tail.split("\n") if line.strip() and not line.startswith("```")]
    return plain(whole_letters(lines[-1])) if lines else ""


@dataclass(slots=True)
class _Unwrapping:
    """Takes the words out of a stream: text as it is, of JSON the values, each from a new line.

    Replies follow each other without a mark, and one may break off anywhere. What does not fit JSON
    is text again from there on.
    """

    brackets: list[str] = field(default_factory=list[str])
    """The brackets that are open; none in text."""
    held: str = ""
    """The beginning of what may be JSON, until that is sure."""
    key: str = ""
    is_line_start: bool = True
    is_string: bool = False
    is_key: bool = False
    is_after_colon: bool = False
    escape: str = ""

    def take(self, piece: str) -> str:
        """The words in the next piece."""
        begins = piece.lstrip().startswith('{"')
        if self.is_string and begins:
            # In a string the quotation mark would be escaped: this is another reply.
            self._leave()
        self.is_line_start = self.is_line_start or begins
        if not self.brackets and "{" not in piece:
            self.is_line_start = _ends_line(piece, self.is_line_start)
            return piece
        return "".join(map(self._take_char, piece))

    def _take_char(self, char: str) -> str:
        if self.is_string:
            return self._take_letter(char)
        return self._take_mark(char) if self.brackets else self._take_text(char)

    def _take_text(self, char: str) -> str:
        if char == "{" and self.is_line_start:
            self.brackets, self.held = ["{"], "{"
            return ""
        self.is_line_start = _ends_line(char, self.is_line_start)
        return char

    def _take_mark(self, char: str) -> str:
        """A character between the strings of JSON."""
        if self.held:
            self.held += char
            if len(self.held) > LONGEST_KEY:
                return self._leave()
        match char:
            case '"':
                return self._begin_string()
            case "{" | "[" if len(self.brackets) < DEEPEST:
                self.brackets.append(char)
                self.is_after_colon = False
            case "}" | "]":
                self.brackets.pop()
                self.is_after_colon = False
                return "" if self.brackets else self._leave()
            case ":":
                self.is_after_colon, self.held = True, ""
            case ",":
                self.is_after_colon = False
            case _ if not char.isspace() and char not in LITERALS:
                return self._leave() or char
            case _:
                pass
        return ""

    def _begin_string(self) -> str:
        self.is_string = True
        self.is_key = self.brackets[-1] == "{" and not self.is_after_colon
        if self.is_key:
            self.key = ""
        return "" if self._is_silent else "\n"

    @property
    def _is_silent(self) -> bool:
        return self.is_key or self.key in SILENT_KEYS

    def _take_letter(self, char: str) -> str:
        """A character in a string."""
        if self.held:
            self.held += char
            if len(self.held) > LONGEST_KEY:
                return self._leave()
        if self.escape:
            char = self._unescape(char)
        elif char == "\\":
            self.escape = char
            return ""
        elif char == '"':
            self.is_string = False
            return ""
        if self.is_key:
            self.key = (self.key + char)[-LONGEST_KEY:]
        return "" if self._is_silent else char

    def _unescape(self, char: str) -> str:
        """What an escape stands for once it is whole; nothing before."""
        self.escape += char
        if not self.escape.startswith("\\u"):
            self.escape = ""
            return ESCAPES.get(char, char)
        if len(self.escape) < 6:
            return ""
        digits, self.escape = self.escape[2:], ""
        try:
            return chr(int(digits, 16))
        except ValueError:
            return digits

    def _leave(self) -> str:
        """Go back to text; what was held is text too."""
        held = self.held
        self.brackets, self.held, self.key, self.escape = [], "", "", ""
        self.is_string = self.is_key = self.is_after_colon = False
        self.is_line_start = True
        return held


def _ends_line(text: str, was_start: bool) -> bool:
    """Whether what follows the text is the first of its line, blanks left aside."""
    _, newline, rest = text.rpartition("\n")
    return not rest.strip() and (bool(newline) or was_start)
