"""How the agents and the world of a generated history behave, and who sits down, by a seed."""

from dataclasses import dataclass, replace
from random import Random

from massgen_mcp.coordination.events import CheckStatus, Final, Member, Mode, Rules, RunStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """How the agents and the world of one history behave; all but the last three are chances."""

    refine: float
    vote_first: float
    self_vote: float
    runner_up: float
    slip: float
    fail: float
    copy: float
    clock: float
    trouble: float
    disturbances: int
    texts: int
    checks: tuple[CheckStatus, ...]


def draw_temper(rng: Random, is_split: bool) -> Temper:
    """The temper of one history; `is_split` makes for ties."""
    temper = Temper(
        refine=rng.choice([0.0, 0.0, 0.1, 0.4]),
        vote_first=rng.choice([0.0, 0.0, 0.0, 0.3]),
        self_vote=rng.choice([0.1, 0.5, 0.9]),
        runner_up=rng.choice([0.0, 0.0, 0.5, 1.0]),
        slip=rng.choice([0.0, 0.0, 0.1, 0.3]),
        fail=rng.choice([0.0, 0.0, 0.05, 0.25]),
        copy=rng.choice([0.0, 0.0, 0.4]),
        clock=rng.choice([0.0, 0.1, 0.5]),
        trouble=rng.choice([0.05, 0.3]),
        disturbances=rng.choice([0, 0, 0, 1, 2, 4]),
        texts=rng.choice([2, 4, 1000, 1000]),
        checks=rng.choice(
            [(), (), ("passed", "failed"), ("passed", "failed", "inconclusive"), ("failed",)]
        ),
    )
    if not is_split:
        return temper
    # A team that is evenly split and undisturbed: left to chance, the last tie rules are rare.
    return replace(
        temper,
        refine=0.0,
        vote_first=0.0,
        runner_up=rng.choice([0.0, 0.0, 1.0]),
        slip=0.0,
        fail=0.0,
        clock=0.0,
        disturbances=0,
        texts=1000,
        checks=rng.choice([(), (), ("passed", "failed")]),
    )


def draw_start(rng: Random, is_split: bool) -> RunStarted:
    """The start of one history."""
    size = rng.choice([4, 4, 5, 6, 6] if is_split else [1, 2, 2, 3, 3, 3, 4, 5, 6])
    labels = [f"agent{number}" for number in range(1, size + 1)]
    positions = rng.sample(range(size), size)
    models = [f"model{number}" for number in range(rng.choice([1, 2, 3, 4]))]
    modes: tuple[Mode, ...] = ("vote", "quick", "synthesize", "single")
    finals: list[Final] = ["present", "present", "reuse", "synthesize"]
    members = tuple(
        Member(label=label, position=position, name=f"name{position}", model=rng.choice(models))
        for label, position in zip(labels, positions, strict=True)
    )
    rules = Rules(
        mode=rng.choices(modes, (12, 4, 3, 1))[0],
        final=rng.choice(finals),
        self_votes="forbid" if size >= 3 and rng.random() < 0.3 else "allow",
        novelty="strict" if rng.random() < 0.3 else "off",
        answers_per_agent=rng.choice([1, 2, 3]),
        answer_chars=rng.choice([1_000, 1_000_000]),
        presenter=rng.choice([None, *labels]),
        seed=rng.randrange(1000),
    )
    return RunStarted(members=members, rules=rules)
