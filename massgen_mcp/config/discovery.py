"""What this machine can use without any configuration: keys that are set, servers that run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from massgen_mcp.config.keys import explain_near_variable
from massgen_mcp.config.model_servers import ModelServer, find_servers
from massgen_mcp.providers.catalogue import CATALOGUE, Provider

LEAST_MEMBERS = 3
MOST_PROVIDERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTeam:
    """Members as (provider, model), and what they were found by."""

    members: tuple[tuple[str, str], ...]
    reason: str
    is_local: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTeam:
    """What was looked for in vain, as a sentence goes on after "there is"."""

    looked_for: tuple[str, ...]


def discover(
    variables: Mapping[str, str], servers: Sequence[ModelServer] | None = None
) -> FoundTeam | NoTeam:
    """The team that this machine has without being told; servers are asked only if no key is set.

    `variables` are those of the environment and of `.env` in the home: no file of a project, and
    nothing that one names, has a say.
    """
    keyed = [(one, variable) for one in _sellers() if (variable := set_key(one, variables))]
    if keyed:
        names = ", ".join(variable for _, variable in keyed)
        members = _pick([(one.name, one.models) for one, _ in keyed], MOST_PROVIDERS)
        return FoundTeam(members=members, reason=f"found by the keys in {names}")
    servers = find_servers(variables) if servers is None else servers
    serving = [server for server in servers if server.models]
    if serving:
        where = ", ".join(f"{server.provider} at {server.base_url}" for server in serving)
        members = _pick([(one.provider, one.models) for one in serving], LEAST_MEMBERS)
        return FoundTeam(members=members, reason=f"found by asking {where}", is_local=True)
    return NoTeam(looked_for=(_describe_keys(variables), *map(describe_server, servers)))


def set_key(provider: Provider, variables: Mapping[str, str]) -> str | None:
    """The first of the provider's key variables that is set."""
    return next((name for name in provider.key_variables if variables.get(name)), None)


def describe_server(server: ModelServer) -> str:
    """A server that is of no use, where it was looked for and why it is none."""
    source = f" (from ${server.variable})" if server.variable else ""
    if server.takes_names:
        return f"{server.provider} at {server.base_url}{source} {server.trouble}"
    return f"no model of {server.provider} at {server.base_url}{source}: {server.trouble}"


def _sellers() -> list[Provider]:
    return [provider for provider in CATALOGUE.values() if provider.models]


def _describe_keys(variables: Mapping[str, str]) -> str:
    names = [
        " or ".join(provider.key_variables) + explain_near_variable(provider, variables)
        for provider in _sellers()
    ]
    return f"no key in {', '.join(names)}"


def _pick(offers: Sequence[tuple[str, Sequence[str]]], most: int) -> tuple[tuple[str, str], ...]:
    """The first model of each, then the second of each, ... until there is a team."""
    offers = offers[:most]
    ranks = range(max(len(models) for _, models in offers))
    ranked = [
        (name, models[rank]) for rank in ranks for name, models in offers if rank < len(models)
    ]
    return tuple(islice(cycle(ranked), max(LEAST_MEMBERS, len(offers))))
