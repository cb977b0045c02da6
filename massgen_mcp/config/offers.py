"""The teams of this machine: which of their models can be used here, and why the others cannot."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from massgen_mcp.config.discovery import FoundTeam, NoTeam, discover
from massgen_mcp.config.keys import (
    describe_source,
    explain_near_key,
    find_key,
    read_variables,
    set_in,
)
from massgen_mcp.config.load import Sources, layer_of_found, load_members
from massgen_mcp.config.model_servers import SILENT, ModelServer, find_servers
from massgen_mcp.config.problems import Problem
from massgen_mcp.config.resolve import resolve_team
from massgen_mcp.config.teams import shipped
from massgen_mcp.errors import ConfigError
from massgen_mcp.interfaces import AgentSpec, Home
from massgen_mcp.messages import JsonObject
from massgen_mcp.providers.catalogue import CATALOGUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model of a team, and why it cannot be used here; empty if it can."""

    spec: AgentSpec
    why_not: str = ""
    missing_key: str = ""

    @property
    def model(self) -> str:
        """Provider and model as a team names them."""
        return f"{self.spec.provider}/{self.spec.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamOffer:
    """A team: `@name` if it is shipped, else `configured` or `discovered`.

    `problem` says why there is no such team; `reason` how a discovered one was found.
    """

    name: str
    members: tuple[Member, ...] = ()
    problem: str = ""
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether a run with it can start."""
        return bool(self.members) and not any(member.why_not for member in self.members)

    @property
    def missing_keys(self) -> tuple[str, ...]:
        """Where the keys that it lacks would be, each once."""
        missing = (member.missing_key for member in self.members if member.missing_key)
        return tuple(dict.fromkeys(missing))

    @property
    def why_not(self) -> Mapping[str, str]:
        """The models that cannot be used, each with its reason."""
        return {member.model: member.why_not for member in self.members if member.why_not}

    @property
    def document(self) -> JsonObject:
        """The team for a program."""
        told = {"problem": self.problem, "reason": self.reason}
        return {
            "team": self.name,
            "models": [member.model for member in self.members],
            "usable": self.is_usable,
            "missing_keys": list(self.missing_keys),
            "why_not": dict(self.why_not),
            **{key: words for key, words in told.items() if words},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """All teams. `default` is the one that works when none is named, if there is one.

    `looked_for` says what was looked for in vain when nothing was configured or found; `servers` are
    the usual model servers of this machine; `problems` are those of `.env`.
    """

    teams: tuple[TeamOffer, ...]
    default: TeamOffer | None
    looked_for: tuple[str, ...]
    servers: tuple[ModelServer, ...]
    problems: tuple[str, ...] = ()

    @property
    def document(self) -> JsonObject:
        """The teams for a program, and which of them works when none is named."""
        return {
            "default": self.default.name if self.default else None,
            "teams": [team.document for team in self.teams],
            "looked_for": list(self.looked_for),
            "problems": list(self.problems),
        }


def list_teams(
    home: Home,
    directory: Path,
    environ: Mapping[str, str],
    *,
    config: Path | None = None,
    team: Sequence[str] = (),
) -> Offers:
    """The shipped teams, the configured one and the discovered one. Blocks for half a second at most.

    A configuration that is broken breaks its own team and no other. With `config` or `team`, as `run`
    takes them, theirs is the configured team.
    """
    problems: list[str] = []
    try:
        variables = read_variables(home, environ)
    except ConfigError as error:
        problems.append(str(error))
        variables = set_in(environ)
    survey = _Survey(home=home, variables=variables, servers=find_servers(variables))
    named = [
        survey.offer(f"@{name}", Sources(home=home, directory=path.parent, config=path))
        for name, path in shipped().items()
    ]
    sources = Sources(home=home, directory=directory, config=config, team=team)
    configured = survey.offer("asked for" if team else "configured", sources)
    found = discover(variables, survey.servers)
    own = [configured] if configured.members or configured.problem else []
    if isinstance(found, FoundTeam):
        own.append(survey.discovered(found))
    return Offers(
        teams=(*named, *own),
        default=next(iter(own), None),
        looked_for=found.looked_for if isinstance(found, NoTeam) and not own else (),
        servers=survey.servers,
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    home: Home
    variables: Mapping[str, str]
    servers: tuple[ModelServer, ...]

    def offer(self, name: str, sources: Sources) -> TeamOffer:
        try:
            specs = load_members(sources, self.variables)
        except ConfigError as error:
            return TeamOffer(name=name, problem=str(error))
        members = self._judge(specs, is_shipped=name.startswith("@"))
        return TeamOffer(name=name, members=tuple(members))

    def discovered(self, found: FoundTeam) -> TeamOffer:
        problems: list[Problem] = []
        specs = resolve_team([layer_of_found(found)], self.variables, problems).specs
        return TeamOffer(
            name="discovered",
            members=tuple(self._judge(specs, is_shipped=False)) if not problems else (),
            problem="; ".join(map(str, problems)),
            reason=found.reason,
        )

    def _judge(self, specs: Sequence[AgentSpec], *, is_shipped: bool) -> Iterator[Member]:
        for spec in specs:
            missing_key = why_not = ""
            try:
                if spec.key is not None and find_key(spec, self.home, self.variables) is None:
                    missing_key = describe_source(spec)
                    why_not = f"no key in {missing_key}{explain_near_key(spec, self.variables)}"
            except ConfigError as error:
                why_not = str(error)
            why_not = why_not or self._silence_of(spec, is_shipped=is_shipped)
            yield Member(spec=spec, why_not=why_not, missing_key=missing_key)

    def _silence_of(self, spec: AgentSpec, *, is_shipped: bool) -> str:
        """Why a server of this machine cannot serve the model, as far as the servers were asked."""
        server = next((one for one in self.servers if one.base_url == spec.base_url), None)
        if server is None or not server.is_asked:
            return ""
        if not CATALOGUE[spec.provider].is_local:
            return f"{server.base_url}: {SILENT}" if server.trouble == SILENT else ""
        # Whoever wrote down a model that is not listed may know that it is there; a shipped team does
        # not, and what has the port may be another service.
        if server.takes_names and not is_shipped:
            return ""
        if server.trouble:
            return f"{server.base_url}: {server.trouble}"
        # The one that serves a single model takes any name for it; with several it needs the right one.
        takes_any = spec.provider == "llamacpp" and len(server.models) == 1
        names = {*server.models, *(name.removesuffix(":latest") for name in server.models)}
        if takes_any or spec.model in names:
            return ""
        return f"{server.base_url} serves no such model; it serves {', '.join(server.models)[:300]}"
