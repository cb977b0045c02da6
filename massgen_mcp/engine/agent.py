"""One turn of one agent: ask its model until it ends the turn legally, or three tries are gone."""

from massgen_mcp.coordination.events import (
    AgentRetired,
    AnswerSubmitted,
    NoveltyRefused,
    PresentationFailed,
    TurnFailed,
    VoteCast,
    VoteOvertaken,
)
from massgen_mcp.coordination.machine import Turn
from massgen_mcp.coordination.objections import find_copied, find_equal, find_missed
from massgen_mcp.coordination.state import (
    Agent,
    Balloting,
    RunState,
    current_answers,
    vote_targets,
)
from massgen_mcp.engine import toolbox
from massgen_mcp.engine.calls import call_model
from massgen_mcp.engine.offers import TERMINAL, turn_schema, turn_tools
from massgen_mcp.engine.parts import Parts
from massgen_mcp.engine.prompts import system_prompt
from massgen_mcp.engine.publishing import Publisher
from massgen_mcp.engine.retries import describe_error, name_error
from massgen_mcp.engine.talk import Talk
from massgen_mcp.errors import (
    AuthenticationFailed,
    ContextOverflow,
    ModelNotFound,
    OutOfCredit,
    ProviderError,
    WorkspaceError,
)
from massgen_mcp.messages import (
    Message,
    ModelRequest,
    ModelResponse,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from massgen_mcp.store.codec import Replied, Said, TurnOpened

TRIES = 3
"""Illegal ends of a turn that fail it."""

SAME_NOTICE = 3
SAME_END = 6
"""The same call with the same result: after so many a notice, after so many the turn ends."""


class TurnOver(Exception):
    """The turn ended, well or badly; its events are in the journal."""


class AgentTurn:
    """Plays one turn; `run` returns when the turn is over. What it does is all in the records."""

    def __init__(self, parts: Parts, publisher: Publisher, turn: Turn, opening: RunState) -> None:
        self._parts = parts
        self._publisher = publisher
        self._turn = turn
        self._label = turn.agent
        self._opening = opening
        self._transcript = parts.transcripts[turn.agent]
        self._spec = parts.agents[turn.agent]
        self._progress = parts.progress[turn.agent]

    @property
    def _state(self) -> RunState:
        return self._parts.journal.state

    @property
    def _agent(self) -> Agent:
        return self._state.agents[self._label]

    async def run(self) -> None:
        """Play the turn to its end. Raises StoreError."""
        try:
            talk = await self._open()
            if talk.said and isinstance(talk.said[-1], Replied):
                await self._act_on(talk, talk.said[-1].response)
            while True:
                response = await self._ask(talk)
                await self._act_on(talk, response)
        except TurnOver:
            return
        except (AuthenticationFailed, ModelNotFound, OutOfCredit) as error:
            reason = describe_error(error)
            self._progress.fail(reason, name_error(error))
            await self._parts.journal.try_append(AgentRetired(agent=self._label, reason=reason))
        except ProviderError as error:
            await self._fail(describe_error(error), name_error(error))

    async def _open(self) -> Talk:
        """Begin the turn, or take it up where its transcript ends."""
        number = self._turn.number
        self._progress.move(forward=True)
        if self._transcript.opening(number) is None:
            self._transcript.forget_before(number)
            seq = self._parts.journal.durable_seq
            # Not waited for: the record of the first call comes after it, and is.
            self._transcript.post(TurnOpened(turn=number, seq=seq), sync=False)
        return Talk(
            parts=self._parts,
            turn=self._turn,
            opening=self._opening,
            said=self._transcript.conversation(number),
        )

    async def _ask(self, talk: Talk) -> ModelResponse:
        request = self._request(talk)
        try:
            response = await call_model(self._parts, request)
        except ContextOverflow:
            trimmed = talk.plan_trim()
            if trimmed is None:
                raise
            talk.said.append(trimmed)
            # Durable before the call, so that a resumed turn sends the same.
            await self._transcript.write(trimmed)
            request = self._request(talk)
            response = await call_model(self._parts, request)
        talk.said.append(
            Replied(turn=self._turn.number, call=request.call, response=response, cost_usd=None)
        )
        self._progress.move(forward=False)
        return response

    def _request(self, talk: Talk) -> ModelRequest:
        state, agent, phase = self._state, self._agent, self._turn.phase
        json_style = talk.takes_json
        targets = talk.shown_targets()
        configured = self._spec.options.get("max_output_tokens")
        wished = configured if isinstance(configured, int) else None
        bound = self._parts.budget.output_bound(self._label, wished)
        return ModelRequest(
            agent=self._label,
            turn=self._turn.number,
            call=self._transcript.replies + 1,
            phase=phase,
            system=system_prompt(self._parts.spec, state, agent, json_style=json_style),
            messages=talk.messages(),
            tools=() if json_style else turn_tools(state, agent, phase, targets),
            schema=turn_schema(state, agent, phase, targets, max_output_tokens=bound)
            if json_style
            else None,
            max_output_tokens=bound,
        )

    async def _act_on(self, talk: Talk, response: ModelResponse) -> None:
        calls = toolbox.calls_of(response)
        terminal = [call for call in calls if toolbox.is_terminal(call)]
        if not calls:
            words = toolbox.words_without_call(response, self._offered(talk))
            await self._refuse(talk, calls, words)
        elif len(terminal) > 1:
            words = "You made more than one of new_answer and vote. Make exactly one."
            await self._refuse(talk, calls, words)
        elif terminal:
            await self._end(talk, calls, terminal[0])
        else:
            await self._read(talk, calls)

    async def _end(self, talk: Talk, calls: tuple[ToolCall, ...], call: ToolCall) -> None:
        wish = toolbox.read_wish(call)
        match wish:
            case toolbox.Unusable(words=words):
                await self._refuse(talk, calls, words)
            case toolbox.NewAnswer() if self._turn.phase == "present":
                await self._present(talk, calls, wish)
            case toolbox.NewAnswer():
                await self._submit(talk, calls, wish)
            case toolbox.VoteWish() if self._turn.phase == "present":
                words = "The votes are in. Hand in the final answer with new_answer."
                await self._refuse(talk, calls, words)
            case toolbox.VoteWish():
                await self._vote(talk, calls, wish)

    async def _write_files(self, wish: toolbox.NewAnswer) -> None:
        """Put an answer's files into the workspace, once the reply that brings them is recorded."""
        if wish.files:
            await self._transcript.flush()
            await self._publisher.write(self._label, wish.files)

    async def _submit(
        self, talk: Talk, calls: tuple[ToolCall, ...], wish: toolbox.NewAnswer
    ) -> None:
        try:
            await self._write_files(wish)
            digest = await self._publisher.digest(self._label)
        except WorkspaceError as error:
            await self._refuse(talk, calls, str(error))
            return
        journal = self._parts.journal
        agent = journal.tip.agents[self._label]
        event = AnswerSubmitted(
            agent=self._label,
            turn=self._turn.number,
            label=f"{self._label}.{agent.submissions + 1}",
            content=wish.content,
            files_digest=digest,
        )
        words = journal.objection(event)
        if words is None:
            self._progress.move(forward=True)
            if await self._publisher.publish(event) != "overtaken":
                raise TurnOver
            words = "An equal answer was published while yours was being stored."
            await self._tell(talk, calls, words, is_try=False)
            return
        equal = find_equal(current_answers(journal.tip), wish.content, digest)
        if equal is not None and equal.news > talk.seen:
            await self._tell(talk, calls, words, is_try=False)
            return
        copied = find_copied(journal.tip, self._label, wish.content, digest)
        if equal is None and copied is not None and wish.content.strip():
            refused = NoveltyRefused(agent=self._label, turn=self._turn.number, like=copied.label)
            await journal.try_append(refused)
        await self._refuse(talk, calls, words)

    async def _vote(self, talk: Talk, calls: tuple[ToolCall, ...], wish: toolbox.VoteWish) -> None:
        journal = self._parts.journal
        state = journal.tip
        target, version = toolbox.name_agent(state, wish.target)
        is_ballot = isinstance(state.phase, Balloting)
        missed = None if is_ballot else find_missed(state, self._label, talk.seen)
        current = state.agents[target].answer if target in state.agents else None
        if missed is not None and target in vote_targets(state, state.agents[self._label]):
            overtaken = VoteOvertaken(
                agent=self._label, turn=self._turn.number, target=target, by=missed
            )
            await journal.try_append(overtaken)
            words = (
                f"Not counted: {missed} is newer than what you were shown. Look, then vote again."
            )
            await self._tell(talk, calls, words, is_try=False)
            return
        if version is not None and current is not None and current.label != version:
            words = f"{version} is not a current answer; that of {target} is {current.label}."
            await self._refuse(talk, calls, f"{words} Vote for one of the current answers.")
            return
        event = VoteCast(
            agent=self._label,
            turn=self._turn.number,
            target=target,
            answer="" if current is None else current.label,
            reason=wish.reason,
            runner_up=self._runner_up(state, target, wish.runner_up),
            seen=talk.seen,
            ballot=state.phase.number if isinstance(state.phase, Balloting) else None,
        )
        words = journal.objection(event)
        if words is not None:
            await self._refuse(talk, calls, words)
            return
        await journal.append(event)
        self._progress.move(forward=True)
        raise TurnOver

    def _runner_up(self, state: RunState, target: str, written: str | None) -> str | None:
        """The runner-up if it is one: another agent's answer besides the one voted for."""
        agent, _ = toolbox.name_agent(state, written or "")
        is_other = agent not in {target, self._label}
        has_answer = agent in state.agents and state.agents[agent].answer is not None
        return agent if is_other and has_answer else None

    async def _present(
        self, talk: Talk, calls: tuple[ToolCall, ...], wish: toolbox.NewAnswer
    ) -> None:
        if not wish.content.strip():
            await self._refuse(talk, calls, "The final answer is empty. Write it in full.")
            return
        try:
            await self._write_files(wish)
        except WorkspaceError as error:
            await self._refuse(talk, calls, str(error))
            return
        await self._publisher.present(self._label, self._turn.number, wish.content)
        raise TurnOver

    async def _read(self, talk: Talk, calls: tuple[ToolCall, ...]) -> None:
        """Answer calls that do not end the turn."""
        limit = self._parts.spec.settings.limits.tool_calls_per_turn
        view = talk.view()
        results: list[ToolResult] = []
        is_try, words = False, ""
        for call in calls:
            talk.tool_calls += 1
            found = toolbox.run_reading(view, call)
            if talk.tool_calls > limit:
                words = f"That was call {talk.tool_calls}; a turn has {limit}. End it now."
                found, is_try = toolbox.Found(content=words, is_error=True), True
            elif found is None:
                words = toolbox.unknown_tool(call, self._offered(talk))
                found, is_try = toolbox.Found(content=words, is_error=True), True
            elif found.is_slip:
                words, is_try = found.content, True
            content = found.content + await self._note_repeat(talk, call, found.content)
            results.append(
                ToolResult(
                    call_id=call.id, name=call.name, content=content, is_error=found.is_error
                )
            )
        await self._say(talk, results, words=words, is_try=is_try)

    async def _note_repeat(self, talk: Talk, call: ToolCall, content: str) -> str:
        key = (call.name, call.arguments, content)
        talk.repeats[key] += 1
        count = talk.repeats[key]
        self._progress.move(forward=count == 1)
        if count >= SAME_END:
            await self._fail(f"loop: the same call of {call.name} {count} times, with one result")
            raise TurnOver
        return (
            f"\nYou have made this call {count} times with this result."
            if count >= SAME_NOTICE
            else ""
        )

    def _offered(self, talk: Talk) -> list[str]:
        targets = talk.shown_targets()
        tools = turn_tools(self._state, self._agent, self._turn.phase, targets)
        return [tool.name for tool in tools if not talk.takes_json or tool.name in TERMINAL]

    async def _refuse(self, talk: Talk, calls: tuple[ToolCall, ...], words: str) -> None:
        await self._tell(talk, calls, words, is_try=True)

    async def _tell(
        self, talk: Talk, calls: tuple[ToolCall, ...], words: str, *, is_try: bool
    ) -> None:
        """Answer a wish to end the turn in words, with all that is new, and ask again."""
        await self._parts.journal.wait_until_settled()
        missed = "" if is_try else talk.tell_missed()
        results = [
            ToolResult(call_id=call.id, name=call.name, content=words, is_error=True)
            for call in calls
        ]
        await self._say(talk, results, words=words, is_try=is_try, news=missed)

    async def _say(
        self,
        talk: Talk,
        results: list[ToolResult],
        *,
        words: str = "",
        is_try: bool = False,
        news: str = "",
    ) -> None:
        """Put the results of calls, or else words, into the conversation, and what is new below them."""
        extra = talk.notices()
        if is_try:
            talk.slip(words)
            if talk.tries >= TRIES:
                await self._fail(talk.describe_slips(words or extra))
                raise TurnOver
        extra = f"\n{news}\n{extra}" if news else extra
        printed = len(results) == 1 and results[0].call_id == "printed"
        message: Message
        if results and not printed:
            last = results[-1]
            content = f"{last.content}\n{extra}"
            results[-1] = ToolResult(
                call_id=last.call_id, name=last.name, content=content, is_error=last.is_error
            )
            message = ToolMessage(results=tuple(results))
        else:
            text = results[0].content if results else words
            message = UserMessage(text=f"{text}\n{extra}")
        said = Said(
            turn=self._turn.number,
            message=message,
            seen=talk.seen,
            is_try=is_try,
            kept=len(extra),
        )
        talk.said.append(said)
        await self._transcript.write(said)

    async def _fail(self, reason: str, kind: str | None = None) -> None:
        self._progress.fail(reason, kind)
        if self._turn.phase == "present":
            await self._parts.journal.try_append(PresentationFailed(reason=reason))
        else:
            failed = TurnFailed(agent=self._label, turn=self._turn.number, reason=reason)
            await self._parts.journal.try_append(failed)
