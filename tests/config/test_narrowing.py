"""A host may point at what lies in the project, and at nothing that a person did not hand out."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from massgen_mcp.config.load import Sources, load_ground
from massgen_mcp.config.narrowing import ContextPath, Ground, check_context, narrow, narrow_context
from massgen_mcp.config.trust import trust
from massgen_mcp.errors import ConfigError, UsageError
from massgen_mcp.interfaces import Home
from tests.config.test_load import REMOTE, TWO, load

SECRETS = [".ssh", ".aws", ".gnupg", ".config/gcloud", ".kube", ".docker", ".mozilla", ".massgen"]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A person with secrets, a project in their home, and one root beside it."""
    person = tmp_path / "person"
    for name in SECRETS:
        (person / name).mkdir(parents=True)
    (person / ".netrc").write_text("machine x", encoding="utf-8")
    project = person / "project"
    (project / "src").mkdir(parents=True)
    (project / "notes.md").write_text("x", encoding="utf-8")
    (person / "other" / "deep").mkdir(parents=True)
    return Ground(
        directory=project,
        roots=(person / "other",),
        home=Home(path=person / ".massgen"),
        person=person,
    )


def refusal(ground: Ground, path: object, access: object = "read") -> str:
    with pytest.raises(UsageError) as caught:
        check_context([{"path": path, "access": access}], ground)
    return str(caught.value)


def test_what_lies_in_the_project_or_in_a_root_is_found_with_its_links_resolved(
    ground: Ground,
) -> None:
    (ground.directory / "link").symlink_to("src")
    project, other = ground.directory.resolve(), ground.roots[0].resolve()
    asked = [
        {"path": "."},
        {"path": "src", "access": "rw"},
        {"path": "link"},
        {"path": "notes.md", "access": "read"},
        {"path": str(other / "deep")},
        {"path": "~/other"},
        {"path": "src/../src"},
    ]
    assert check_context(asked, ground) == (
        ContextPath(path=str(project), access="read"),
        ContextPath(path=str(project / "src"), access="rw"),
        ContextPath(path=str(project / "notes.md"), access="read"),
        ContextPath(path=str(other / "deep"), access="read"),
        ContextPath(path=str(other), access="read"),
    )


@pytest.mark.parametrize("secret", [*SECRETS, ".netrc", ".SSH"])
@pytest.mark.parametrize("form", ["~/{}", "../{}", "{person}/{}", "src/../../{}", "~/{}/missing"])
def test_credentials_are_given_to_nobody_however_they_are_written(
    ground: Ground, secret: str, form: str
) -> None:
    for roots in ((), (ground.person,), (ground.person / secret,)):
        wide = replace(ground, roots=roots)
        told = refusal(wide, form.format(secret, person=ground.person))
        assert "credentials" in told or "home of this program" in told, told


@pytest.mark.parametrize(
    "path", ["~", "~/", "..", "/", "../..", "/home", "/root", "/home/somebody", "{person}"]
)
def test_whole_homes_and_the_whole_disk_are_given_to_nobody(ground: Ground, path: str) -> None:
    wide = replace(ground, roots=(Path("/"), ground.person))
    told = refusal(wide, path.format(person=ground.person))
    assert "whole home directory" in told or "whole disk" in told, told


def test_what_holds_the_home_of_this_program_is_closed(ground: Ground) -> None:
    moved = replace(ground, home=Home(path=ground.directory / "data" / "massgen"))
    (ground.directory / "data" / "massgen" / "runs").mkdir(parents=True)
    for path in ("data", "data/massgen", "data/massgen/runs", "."):
        assert "home of this program" in refusal(moved, path)
    assert len(check_context([{"path": "src"}], moved)) == 1


@pytest.mark.parametrize("path", ["/etc", "/etc/passwd", "/tmp", "../elsewhere", "/proc/self/root"])
def test_what_lies_outside_is_refused_with_what_is_inside(ground: Ground, path: str) -> None:
    (ground.person / "elsewhere").mkdir()
    told = refusal(ground, path)
    assert told.startswith("context_paths[0]: ")
    assert "lies outside" in told or "whole" in told
    assert "whole" in told or f"({ground.directory.resolve()}, " in told
    assert "whole" in told or "`context_roots`" in told


def test_a_link_that_leads_out_is_refused_naming_where_it_leads(ground: Ground) -> None:
    (ground.directory / "keys").symlink_to(ground.person / ".ssh")
    (ground.directory / "etc").symlink_to("/etc")
    (ground.directory / "way").symlink_to(ground.directory / "etc")
    assert "credentials" in refusal(ground, "keys")
    assert "'way' (/etc) lies outside" in refusal(ground, "way")
    assert "'etc/passwd' (/etc/passwd) lies outside" in refusal(ground, "etc/passwd")


@pytest.mark.parametrize("whole", ["{person}", "/"])
def test_a_server_that_was_started_in_a_home_or_at_the_root_hands_out_nothing(
    ground: Ground, whole: str
) -> None:
    started = replace(ground, directory=Path(whole.format(person=ground.person)), roots=())
    told = refusal(started, str(ground.directory / "src"))
    assert "(no folder at all)" in told
    rooted = replace(started, roots=(ground.directory,))
    assert len(check_context([{"path": str(ground.directory / "src")}], rooted)) == 1


def test_what_is_not_there_or_no_file_is_told(ground: Ground) -> None:
    os.mkfifo(ground.directory / "pipe")
    (ground.directory / "loop").symlink_to("loop")
    (ground.directory / "gone").symlink_to("nowhere")
    for path, words in (
        ("missing", "No such file"),
        ("gone", "No such file"),
        ("notes.md/x", "Not a directory"),
        ("loop", "cannot be used"),
        ("pipe", "neither a folder nor a plain file"),
        ("x" * 5000, "cannot be used"),
    ):
        assert words in refusal(ground, path)


def test_of_what_is_outside_nobody_learns_whether_it_is_there(ground: Ground) -> None:
    there, missing = refusal(ground, "/etc/passwd"), refusal(ground, "/etc/nothing-here")
    assert there.replace("passwd", "X") == missing.replace("nothing-here", "X")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "path: must be a path"),
        ({"path": 3}, "path: must be a path"),
        ({"path": ""}, "path: must be a path"),
        ({"path": "a\x00b"}, "path: must be a path"),
        ({"path": "a\nb"}, "path: must be a path"),
        ({"path": "src", "access": "write"}, "'write' is not valid; write read or rw"),
        ({"path": "src", "access": ["rw"]}, "is not valid"),
        ({"path": "src", "mode": "rw"}, "unknown key 'mode'; an entry has path and access"),
        ({"path": "~root/x"}, "somebody's home directory"),
    ],
)
def test_an_entry_of_another_shape_is_refused_in_words(
    ground: Ground, entry: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_context([{"path": "src"}, entry], ground)
    assert str(caught.value).startswith("context_paths[1]")
    assert words in str(caught.value)


def test_until_agents_can_read_files_an_allowed_path_is_refused_and_says_so(
    ground: Ground,
) -> None:
    with pytest.raises(UsageError, match="this version cannot give them files yet"):
        narrow_context([{"path": "src"}], ground)
    assert narrow_context([], ground) == ()


def test_roots_come_from_the_user_and_from_trusted_files_alone(tmp_path: Path) -> None:
    home = Home(path=tmp_path / "home")
    home.path.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    sources = Sources(home=home, directory=project, by_host=True, environ={})
    assert load_ground(sources).roots == ()
    (home.path / "config.yaml").write_text("context_roots: [~/src, /srv/x]\n", encoding="utf-8")
    assert load_ground(sources).roots == (Path.home() / "src", Path("/srv/x"))
    file = project / "massgen.yaml"
    file.write_text("context_roots: [beside]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"context_roots.* config trust"):
        load_ground(sources)
    trust(home, file)
    assert load_ground(sources).roots[-1] == project / "beside"


def test_a_host_lowers_limits_and_never_raises_them(tmp_path: Path) -> None:
    settings = load(tmp_path, TWO + "limits: {max_usd: 4, max_calls: 30}\n")
    lower = narrow(settings, {"max_usd": 1.5, "max_tokens": 9000, "turn_seconds": 30}).limits
    assert (lower.max_usd, lower.max_tokens, lower.max_calls) == (1.5, 9000, 30)
    assert lower.wrap_up_seconds < lower.turn_seconds == 30
    assert narrow(settings, {}) == settings
    over: list[tuple[Mapping[str, float | int | None], str]] = [
        ({"max_usd": 5}, r"limits\.max_usd: 5 is over the 4 of limits\.max_usd in the configur"),
        ({"max_usd": None}, r"limits\.max_usd: no limit is over the 4"),
        ({"run_seconds": 7200, "max_calls": 31}, "the arguments have 2 problems"),
        ({"max_dollars": 1}, r"limits\.max_dollars: unknown key .* .valid here: answers_per_agent"),
        ({"max_calls": -1}, r"limits\.max_calls: should be greater"),
    ]
    for limits, words in over:
        with pytest.raises(UsageError, match=words):
            narrow(settings, limits)
    unpriced = load(tmp_path, REMOTE)
    with pytest.raises(UsageError, match="the price of a is not known"):
        narrow(unpriced, {"max_usd": 1})
    assert narrow(unpriced, {"run_seconds": 9}).warnings == unpriced.warnings
    assert len(unpriced.warnings) == 1
    for limit in ("max_tokens", "max_calls"):
        assert narrow(unpriced, {limit: 9}).warnings == ()
