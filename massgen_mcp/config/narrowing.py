"""A host's arguments: they take something away from what the user configured, and never add to it."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from massgen_mcp.config.problems import Problem, refusal_of_arguments, validate
from massgen_mcp.config.resolve import fit_wrap_up
from massgen_mcp.config.schema import Document
from massgen_mcp.config.spending import UNBOUNDED, describe_unpriced, is_unbounded
from massgen_mcp.config.trust import is_higher, limit_of, shown
from massgen_mcp.errors import UsageError
from massgen_mcp.interfaces import Home, Settings
from massgen_mcp.providers.prices import price_of

LimitValues: TypeAlias = Mapping[str, float | int | None]
Access: TypeAlias = Literal["read", "rw"]

CREDENTIALS = (
    ".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc",
    ".pypirc", ".pgpass", ".vault-token", ".password-store", ".massgen", ".mozilla", ".thunderbird",
    ".claude", ".codex", ".gemini", ".cursor",
    ".config/gcloud", ".config/gh", ".config/op", ".config/massgen", ".config/google-chrome",
    ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi",
    ".config/opera", ".local/share/keyrings", ".local/share/kwalletd", ".terraform.d", ".cargo/credentials",
    ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
    "snap/firefox", "snap/chromium", ".var/app",
    "Library/Keychains", "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox", "Library/Application Support/BraveSoftware",
    "Library/Application Support/Microsoft Edge", "Library/Application Support/Arc",
    "Library/Safari", "Library/Containers", "Library/Group Containers",
)  # fmt: skip
"""What holds keys, passwords or sessions, below a home directory."""

SECRET_ANYWHERE = frozenset({".ssh", ".aws", ".gnupg", ".netrc", ".password-store"})
"""Names that hold keys wherever they lie, backups of home directories included."""

HOMES = ("/root", "/home/*", "/Users/*", "/var/root")
"""Where home directories lie, whoever's they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPath:
    """A folder or file that agents may read or, with `rw`, propose changes to; every link resolved."""

    path: str
    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where context paths may lie: below the server's `directory` or one of the user's `roots`.

    `home` and the credentials of `person` (whose home directory it is) are closed wherever they lie.
    """

    directory: Path
    roots: tuple[Path, ...]
    home: Home
    person: Path


def narrow(settings: Settings, limits: LimitValues) -> Settings:
    """The settings under limits of a host, which may only lower those of the configuration.

    Raises UsageError for limits that are none, or higher.
    """
    document = validate({"limits": dict(limits)}, "the arguments")
    if not isinstance(document, Document):
        raise refusal_of_arguments(document)
    asked = document.limits
    problems = [
        Problem(
            file="the arguments",
            place=f"limits.{name}",
            words=(
                f"{shown(limit_of(asked, name))} is over the {shown(limit_of(settings.limits, name))} "
                f"of limits.{name} in the configuration; ask for no more than that, "
                "or have a person raise it there"
            ),
        )
        for name in sorted(asked.model_fields_set)
        if is_higher(limit_of(asked, name), limit_of(settings.limits, name))
    ]
    if asked.max_usd is not None and "max_usd" in asked.model_fields_set:
        unpriced = [spec for spec in settings.agents if price_of(spec) is None]
        words = (
            f"{describe_unpriced(unpriced)}; "
            "have a person write a `price:` for it in the configuration, or use max_tokens"
        )
        if unpriced:
            problems.append(Problem(file="the arguments", place="limits.max_usd", words=words))
    if problems:
        raise refusal_of_arguments(problems)
    lowered = replace(settings.limits, **asked.model_dump(exclude_unset=True))
    warnings = tuple(
        warning
        for warning in settings.warnings
        if is_unbounded(lowered) or not warning.startswith(UNBOUNDED)
    )
    return replace(settings, limits=fit_wrap_up(lowered), warnings=warnings)


def narrow_context(
    asked: Sequence[Mapping[str, object]], ground: Ground
) -> tuple[ContextPath, ...]:
    """The context paths of a run. Raises UsageError for what a host may not hand out.

    Until agents can read files, a path that is allowed is refused too: silence would look like
    consent.
    """
    paths = check_context(asked, ground)
    if paths:
        message = (
            f"context_paths: {paths[0].path} may be given to agents, but this version cannot give "
            "them files yet; leave context_paths out and put what they need into the task"
        )
        raise UsageError(message)
    return paths


def check_context(asked: Sequence[Mapping[str, object]], ground: Ground) -> tuple[ContextPath, ...]:
    """The paths as they really are, links resolved, each once. Raises UsageError."""
    checked = [_check(entry, f"context_paths[{n}]", ground) for n, entry in enumerate(asked)]
    access: dict[str, Access] = {}
    for path in checked:
        access[path.path] = "rw" if "rw" in (path.access, access.get(path.path)) else "read"
    return tuple(ContextPath(path=path, access=access[path]) for path in access)


def _check(entry: Mapping[str, object], place: str, ground: Ground) -> ContextPath:
    for key in entry:
        if key not in ("path", "access"):
            message = f"{place}: unknown key {str(key)[:60]!r}; an entry has path and access"
            raise UsageError(message)
    written, access = entry.get("path"), entry.get("access", "read")
    if not isinstance(written, str) or not written.strip() or not written.isprintable():
        message = f"{place}.path: must be a path in one line, for example src"
        raise UsageError(message)
    if access not in ("read", "rw"):
        message = f"{place}.access: {str(access)[:60]!r} is not valid; write read or rw"
        raise UsageError(message)
    path = _really(written, place, ground)
    closed = _closed_by(path, ground)
    if closed:
        message = f"{place}: {_named(written, path)} {closed}; name a folder of the project instead"
        raise UsageError(message)
    # Some hosts start servers in the home directory or in /: that is nobody's choice of a project.
    directory = ground.directory.resolve()
    own = () if _is_whole(directory, ground) else (directory,)
    roots = (*own, *(root.resolve() for root in ground.roots))
    if not any(path.is_relative_to(root) for root in roots):
        inside = ", ".join(str(root) for root in roots) or "no folder at all"
        message = (
            f"{place}: {_named(written, path)} lies outside of what may be given to agents "
            f"({inside}); name a path in there, or have a person add one to `context_roots` in the "
            "user's configuration"
        )
        raise UsageError(message)
    return ContextPath(path=str(path), access="rw" if access == "rw" else "read")


def _really(written: str, place: str, ground: Ground) -> Path:
    """The path without links and dots. Raises UsageError for one that is not there."""
    if written == "~" or written.startswith("~/"):
        path = ground.person / written[2:]
    elif written.startswith("~"):
        message = (
            f"{place}.path: {written[:200]!r} is somebody's home directory; write the path out"
        )
        raise UsageError(message)
    else:
        path = ground.directory / written
    try:
        found = path.resolve(strict=True)
        mode = found.stat().st_mode
    except (OSError, RuntimeError, ValueError) as error:
        # Of a path that is closed anyway nothing is told, not even whether it is there.
        lexical = Path(os.path.normpath(path))
        if _closed_by(lexical, ground) or not _is_below(lexical, ground):
            return lexical
        words = error.strerror if isinstance(error, OSError) and error.strerror else "not a path"
        message = (
            f"{place}.path: {written[:200]!r} cannot be used: {words}; "
            f"name a path that is there, relative to {ground.directory}"
        )
        raise UsageError(message) from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        message = f"{place}.path: {written[:200]!r} is neither a folder nor a plain file; name one"
        raise UsageError(message)
    return found


def _is_below(path: Path, ground: Ground) -> bool:
    return any(path.is_relative_to(root) for root in (ground.directory, *ground.roots))


def _closed_by(path: Path, ground: Ground) -> str:
    """Why the path is given to nobody, or nothing."""
    whole = _is_whole(path, ground)
    if whole:
        return whole
    own = ground.home.path.resolve()
    if path.is_relative_to(own) or own.is_relative_to(path):
        return "is or holds the home of this program, where keys are kept"
    if SECRET_ANYWHERE & {part.casefold() for part in path.parts}:
        return "is or lies in credentials"
    folded = _folded(path)
    for home in _homes_around(path, ground):
        for name in CREDENTIALS:
            secret = _folded(home / name)
            if folded.is_relative_to(secret) or secret.is_relative_to(folded):
                return "is or holds credentials"
    return ""


def _is_whole(path: Path, ground: Ground) -> str:
    if path.parent == path:
        return "is the whole disk"
    return "is or holds a whole home directory" if _holds_home(path, ground) else ""


def _folded(path: Path) -> Path:
    """For comparing: some file systems do not tell .SSH from .ssh."""
    return Path(str(path).casefold())


def _holds_home(path: Path, ground: Ground) -> bool:
    if ground.person.resolve().is_relative_to(path) or ground.person.is_relative_to(path):
        return True
    return any(path.match(home) and path.is_absolute() for home in HOMES) or str(path) in (
        "/home",
        "/Users",
        "/var",
    )


def _homes_around(path: Path, ground: Ground) -> list[Path]:
    """The home directories, anybody's, in which the path lies."""
    homes = [folder for folder in path.parents if any(folder.match(home) for home in HOMES)]
    return [*homes, ground.person, ground.person.resolve()]


def _named(written: str, path: Path) -> str:
    return str(path)[:300] if written == str(path) else f"{written[:200]!r} ({str(path)[:300]})"
