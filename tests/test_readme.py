"""What README.md says is so."""

import json
import re
import tomllib
from pathlib import Path

import anyio
import pytest
from mcp import Client

from massgen_mcp.cli.exits import BY_KIND
from massgen_mcp.cli.main import program
from massgen_mcp.config.load import check_file
from massgen_mcp.interfaces import Home, Limits
from massgen_mcp.providers.catalogue import CATALOGUE
from massgen_mcp.server.server import build_server
from massgen_mcp.server.watching import LONGEST_WAIT, longest_wait

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_test_command_is_the_one_that_the_checks_call() -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    setup = "python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[dev]' && "
    commands = [line.removeprefix(setup) for line in lines if line.startswith(setup)]
    assert commands == ["pytest"]
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(rf" {commands[0]} 2>&1 \| tee", checks)


def test_the_demo_command_is_there() -> None:
    line = "python3 -m venv .venv && . .venv/bin/activate && pip install . && massgen-mcp demo"
    assert line in README


@pytest.mark.parametrize("number", range(len(blocks("yaml"))))
def test_every_configuration_in_it_is_valid(number: int, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(blocks("yaml")[number], encoding="utf-8")
    assert check_file(path).agents


def test_every_command_in_it_exists() -> None:
    named = set(re.findall(r"massgen-mcp ([a-z]+)", README))
    assert named <= set(program.commands), named - set(program.commands)
    assert {"demo", "run", "start", "wait", "result", "resume", "serve", "teams"} <= named


def test_every_host_setting_in_it_is_json() -> None:
    assert len(blocks("json")) == 2
    for block in blocks("json"):
        (servers,) = json.loads(block).values()
        assert [servers["massgen"]["command"], *servers["massgen"]["args"]] == [
            "massgen-mcp",
            "serve",
        ]


def test_every_provider_is_named_with_where_its_key_is_found() -> None:
    table = README[README.index("| `provider:` |") : README.index("A model without tool calls")]
    named = set(re.findall(r"`([a-z_]+)`", table)) - {"base_url"}
    assert named == CATALOGUE.keys() - {"scripted"}
    for name in ("openai", "anthropic", "gemini"):
        assert all(variable in table for variable in CATALOGUE[name].key_variables)


async def test_the_prompts_and_resources_in_it_are_those_of_the_server(tmp_path: Path) -> None:
    with anyio.fail_after(30):
        async with Client(build_server(Home(path=tmp_path), tmp_path)) as client:
            prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
            listed = (await client.list_resources()).resources
            templates = (await client.list_resource_templates()).resource_templates
    assert all(f"`{name}`" in README for name in prompts)
    addresses = [str(one.uri) for one in listed] + [one.uri_template for one in templates]
    assert addresses
    assert all(f"`{address}`" in README for address in addresses)


def test_the_limits_in_it_are_those_of_the_program() -> None:
    limits = Limits()
    assert f"`limits.retry_seconds` ({limits.retry_seconds:g})" in README
    assert f"`max_usd` ({limits.max_usd:g} unless" in README
    assert f"`wait` {LONGEST_WAIT:g} s at most" in README
    assert longest_wait({"MASSGEN_MAX_WAIT": "240"}) == (240, None)


async def test_the_tools_in_it_are_those_of_the_server(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \|", README, re.MULTILINE)
    with anyio.fail_after(30):
        async with Client(build_server(Home(path=tmp_path), tmp_path)) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
    assert [row for row in rows if row in tools] == tools


def test_every_outcome_is_named() -> None:
    for kind in BY_KIND:
        assert f"`{kind}`" in README


def test_every_dependency_has_a_line_that_says_what_it_is_for() -> None:
    needed = {re.split(r"[<>=\[~]", line)[0] for line in PROJECT["project"]["dependencies"]}
    explained = set(re.findall(r"^\| ([a-z0-9-]+) \| \w", README, re.MULTILINE)) - {
        "package",
        "mode",
    }
    assert needed <= explained, needed - explained


def test_every_file_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
