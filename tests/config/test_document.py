import os
import socket
import time
from pathlib import Path

import pytest

from massgen_mcp.config.document import MAX_BYTES, parse_source, read_source
from massgen_mcp.errors import ConfigError


def parse(tmp_path: Path, content: bytes) -> object:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    return parse_source(read_source(path))


def test_simple_yaml_becomes_plain_data(tmp_path: Path) -> None:
    content = (
        b"\xef\xbb\xbfversion: 1\nagents: [{model: x, price: {input: 0.5}}]\non_: yes\nnone: ~\n"
    )
    assert parse(tmp_path, content) == {
        "version": 1,
        "agents": [{"model": "x", "price": {"input": 0.5}}],
        "on_": True,
        "none": None,
    }


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"---\n"])
def test_a_file_without_settings_is_an_empty_mapping_or_refused(
    tmp_path: Path, content: bytes
) -> None:
    if content.startswith(b"---"):
        with pytest.raises(ConfigError, match="holds no settings"):
            parse(tmp_path, content)
    else:
        assert parse(tmp_path, content) == {}


def test_what_looks_like_a_date_stays_text(tmp_path: Path) -> None:
    content = b"a: 2026-01-31\nb: 2026-99-99\nc: =\n"
    assert parse(tmp_path, content) == {"a": "2026-01-31", "b": "2026-99-99", "c": "="}


BOMB = b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (BOMB, r"line 2: aliases .* write the value out"),
        (b"a: !!python/object/apply:os.system [id]\n", r"line 1: tags"),
        (b"a: !!binary aGk=\n", r"line 1: tags"),
        (b"a: 1\nb: 2\na: 3\n", r"line 3: key 'a' is given twice"),
        (b"a: {b: 1, b: 2}\n", r"line 1: key 'b' is given twice"),
        (b"1: x\n", r"line 1: a key must be a word"),
        (b"[1, 2]: x\n", r"line 1: a key must be a word"),
        (b"<<: {a: 1}\n", r"line 1: a key must be a word"),
        (b"a: " + b"[" * 60 + b"]" * 60, r"line 1: nested more than 40 deep"),
        (b"a: " + b"[" * 100_000, r"nest"),
        (b"a: [1\n", r"is not valid YAML"),
        (b"a: 1\n---\nb: 2\n", r"is not valid YAML"),
        (b"a: " + b"9" * 5000, r"line 1: a number of 5,000 characters; no setting takes more"),
        (b"a: 1\nb: [0x" + b"f" * 39 + b"]", r"line 2: a number of 41 characters"),
        (b"a: 0." + b"1" * 900_000, r"line 1: a number of 900,002 characters"),
        (b"\xff\xfe\x00", r"is not UTF-8 text \(byte 0\)"),
        (b"- a\n- b\n", r"holds no settings"),
        (b"just words\n", r"holds no settings"),
        (b"a: x\n" + b"#" * MAX_BYTES, r"is larger than 1,000,000 bytes"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_hostile_file_is_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(tmp_path, content)
    assert str(tmp_path / "file.yaml") in str(caught.value)


def test_a_time_of_day_is_text_and_so_is_any_number_to_the_base_of_sixty(tmp_path: Path) -> None:
    endless = b"1" + b":1" * 450_000
    began = time.monotonic()
    read = parse(tmp_path, b"a: 1:30\nb: 190:20:30.15\nc: '1:30'\nd: " + endless + b"\ne: 130\n")
    assert time.monotonic() - began < 10
    assert read == {
        "a": "1:30", "b": "190:20:30.15", "c": "1:30", "d": endless.decode(), "e": 130,
    }  # fmt: skip
    longest = int("9" * 40)
    assert parse(tmp_path, f"a: {longest}\n".encode()) == {"a": longest}


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, kind in ((Path("/dev/zero"), "a device"), (pipe, "a pipe"), (tmp_path, "a folder")):
        with pytest.raises(ConfigError, match=f"not a plain file, but {kind}; name a YAML file"):
            read_source(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        with pytest.raises(ConfigError, match="cannot be read"):
            read_source(tmp_path / "socket")


def test_a_link_is_followed_for_a_person_and_not_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("version: 1\n", encoding="utf-8")
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    assert read_source(link).content == b"version: 1\n"
    with pytest.raises(ConfigError, match="is a link"):
        read_source(link, follow_links=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", r"file\.yaml, line 2 is not valid YAML: did not find expected node content"),
        (b"a: b: c\n", r"line 1 is not valid YAML: mapping values are not allowed"),
        (b"a:\n\t- b\n", r"line 2 is not valid YAML: .*starts with a tab; YAML takes spaces only"),
        (b"a: \xc3\xa4\n\nb: \x07\n", r"line 3 is not valid YAML: it holds a character that no"),
        (b"a: 1\n---\nb: 2\n", r"line 2 is not valid YAML: but found another document"),
        (b"a: '", r"line 1 is not valid YAML: found unexpected end of stream"),
        (b"a: 0b_", r"file\.yaml is not valid YAML: a number in it is none; write it in digits"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_file_and_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse(tmp_path, content)
    assert "<unicode string>" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "file.yaml"))
