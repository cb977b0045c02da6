"""What a provider's refusal means: from status, code and words to the tree of errors."""

import email.utils
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from massgen_mcp.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    ProviderTrouble,
    ProviderUnavailable,
    RateLimited,
    ReplyEmpty,
    ReplyMalformed,
    ReplyRefused,
)
from massgen_mcp.messages import ModelResponse
from massgen_mcp.providers.letters import whole_letters, without_key
from massgen_mcp.providers.loose_json import brief

_LONGEST_WORDS = 500

_BY_STATUS: dict[int, type[ProviderError]] = {
    400: BadRequest,
    401: AuthenticationFailed,
    402: OutOfCredit,
    403: AuthenticationFailed,
    404: ModelNotFound,
    408: ProviderTimeout,
    409: ProviderUnavailable,
    413: ContextOverflow,
    422: BadRequest,
    429: RateLimited,
    # No such method there: it is no server of models, and waiting makes none of it.
    501: ModelNotFound,
    503: Overloaded,
    529: Overloaded,
}

_BY_CODE: dict[str, type[ProviderError]] = {
    "content_filter": ReplyRefused,
    "content_policy_violation": ReplyRefused,
    "context_length_exceeded": ContextOverflow,
    "invalid_api_key": AuthenticationFailed,
    "model_not_found": ModelNotFound,
    "rate_limit_exceeded": RateLimited,
    # OpenAI answers 429 to an account without credit; waiting does not help it.
    "insufficient_quota": OutOfCredit,
    "billing_not_active": OutOfCredit,
    # Anthropic's types.
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "billing_error": OutOfCredit,
    "not_found_error": ModelNotFound,
    "request_too_large": ContextOverflow,
    "rate_limit_error": RateLimited,
    "overloaded_error": Overloaded,
    "timeout_error": ProviderTimeout,
    # Gemini's states.
    "UNAUTHENTICATED": AuthenticationFailed,
    "API_KEY_INVALID": AuthenticationFailed,
    "PERMISSION_DENIED": AuthenticationFailed,
    "NOT_FOUND": ModelNotFound,
    "RESOURCE_EXHAUSTED": RateLimited,
    "DEADLINE_EXCEEDED": ProviderTimeout,
    "UNAVAILABLE": Overloaded,
    # OpenAI's, in streams.
    "server_is_overloaded": Overloaded,
}

_TOO_LONG = re.compile(
    r"context[ _-](length|window|size)|maximum context|context_length_exceeded"
    r"|prompt is too long|too many tokens|exceeds? the (model|available) ",
    re.IGNORECASE,
)

_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient (balance|credits?|funds|quota)", re.IGNORECASE
)

_NEXT: dict[type[ProviderError], str] = {
    AuthenticationFailed: "Give {variable} a key that may use this model, or point `api_key` of agent {agent!r} to another variable.",
    OutOfCredit: "Add credit to the account behind {variable}, or give agent {agent!r} another provider.",
    ModelNotFound: "Check `model` and `base_url` of agent {agent!r}: another model, or an endpoint that serves this one by {dialect}.",
    BadRequest: "Check `model` and `options` of agent {agent!r}; a server without tool calls needs `tool_style: json_schema`.",
    ContextOverflow: "Give agent {agent!r} a `model` that reads more, or lower `coordination.excerpt_chars`.",
    ReplyRefused: "Reword the task, or give agent {agent!r} another `model`.",
    ReplyEmpty: "Raise `max_output_tokens` in `options` of agent {agent!r}, or give it another `model`.",
    ReplyMalformed: "Check `base_url` of agent {agent!r}: it must lead to an endpoint for {dialect}.",
    RateLimited: "Wait, lower `limits.concurrent_calls`, or raise the limit of the account.",
    Overloaded: "Try again later, or give agent {agent!r} another `model`.",
    ProviderTimeout: "Raise `timeout_seconds` of agent {agent!r}, or use a faster `model`.",
    ProviderUnavailable: "Try again later, or check `base_url` of agent {agent!r}.",
}

_SAYS: dict[type[ProviderError], str] = {
    AuthenticationFailed: "does not accept the key",
    OutOfCredit: "says that the account has no credit",
    ModelNotFound: "does not know the model or the endpoint",
    BadRequest: "does not accept the request",
    ContextOverflow: "cannot read a request of this length",
    ReplyRefused: "declined to answer",
    ReplyEmpty: "sent an empty reply",
    ReplyMalformed: "sent what is not a reply",
    RateLimited: "takes no more requests for now",
    Overloaded: "is overloaded",
    ProviderTimeout: "did not answer in time",
    ProviderUnavailable: "fails or cannot be reached",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Who was asked, as error texts name it; `key` is here only to be struck from their words."""

    provider: str
    agent: str
    model: str
    base_url: str
    key_variable: str
    dialect: str = "Chat Completions"
    """The dialect's name for people."""
    key: str | None = field(default=None, repr=False)

    def quote(self, words: str) -> str:
        """The provider's own words on one line, cut to a readable length and without the key."""
        words = without_key(whole_letters(brief(words)), self.key)
        if "<html" in words.lower() or "<!doctype" in words.lower():
            title = re.search(r"<title>(.*?)</title>", words, re.IGNORECASE | re.DOTALL)
            words = "an HTML page" + (f" titled {title[1].strip()!r}" if title else "")
        words = " ".join(words.split())
        return words if len(words) <= _LONGEST_WORDS else words[:_LONGEST_WORDS] + "..."

    def describe(self) -> str:
        """Provider, model and address."""
        return f"{self.provider} model {self.model!r} at {self.base_url}"


def failure_of(
    endpoint: Endpoint,
    words: str,
    *,
    status: int | None = None,
    code: str = "",
    retry_after: float | None = None,
) -> ProviderError:
    """The error that this refusal is; without a status, the code decides."""
    return failure(endpoint, _class_of(status, code, words), words, status, retry_after)


def failure(
    endpoint: Endpoint,
    kind: type[ProviderError],
    words: str,
    status: int | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    """An error of this kind, in words that say who, what and what to do next."""
    number = "" if status is None else f" ({status})"
    following = _NEXT[kind].format(
        agent=endpoint.agent, variable=endpoint.key_variable, dialect=endpoint.dialect
    )
    quoted = endpoint.quote(words)
    said = f": {quoted}" if quoted else ""
    text = f"{endpoint.describe()} {_SAYS[kind]}{number}{said.rstrip('.')}. {following}"
    if issubclass(kind, ProviderTrouble):
        return kind(text, retry_after=retry_after)
    return kind(text)


def check_reply(endpoint: Endpoint, response: ModelResponse) -> None:
    """Raises ReplyRefused for a refusal, and ReplyEmpty for a reply with neither text nor call.

    What the reply cost goes with the error.
    """
    if response.stop_reason == "refusal":
        raise _spent(failure(endpoint, ReplyRefused, response.text), response)
    if response.tool_calls or response.text.strip():
        return
    thought = "it thought, but " if response.reasoning else ""
    if response.stop_reason == "length":
        words = f"{thought}the limit on output was reached before a word was said"
    else:
        words = f"{thought}it ended without text or tool call"
    raise _spent(failure(endpoint, ReplyEmpty, words), response)


def _spent(error: ProviderError, response: ModelResponse) -> ProviderError:
    error.usage, error.model = response.usage, response.model
    return error


def _class_of(status: int | None, code: str, words: str) -> type[ProviderError]:
    if status is None and re.fullmatch(r"[1-5]\d\d", code):
        status = int(code)
    if code in _BY_CODE:
        return _BY_CODE[code]
    words = brief(words)
    # Some servers answer an overlong request with 500.
    if status in (None, 400, 413, 422, 500) and _TOO_LONG.search(words):
        return ContextOverflow
    # Not every account without credit is answered with 402.
    if status in (None, 400, 403, 429) and _NO_CREDIT.search(words):
        return OutOfCredit
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is None or status >= 500:
        return ProviderUnavailable
    return BadRequest


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """The wait in seconds that the reply asks for; headers may give seconds or a date."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        parsed = email.utils.parsedate_tz(value)
        return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())
    except (ValueError, OverflowError):
        return None


def _number(value: str) -> float | None:
    # No more digits than a wait can have: a float of very many is infinite.
    return float(value) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) else None
