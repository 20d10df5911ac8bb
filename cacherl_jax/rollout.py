"""Groups of tasks in, finished trajectories (device) and episodes (host) out: where both meet.

The device writes tokens; the host reads finished turns, asks tools, and hands back the next forced
block.  Text is made from ids to be parsed and looked at; it never becomes ids again.  Of several
processes the first asks the tools, and all go on with what it was told.
"""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp

from cacherl_jax import keys
from cacherl_jax.chat.parse import HERMES, CallFormat, parse_turn
from cacherl_jax.chat.template import Chat, tool_message
from cacherl_jax.policy.decode import Decoder
from cacherl_jax.policy.slots import DecodeState, Prompt, Rest
from cacherl_jax.processes import is_first, whole
from cacherl_jax.seat import RolloutSettings, Seat, past_a_limit
from cacherl_jax.tasks.task import Episode, Task, Termination, Turn
from cacherl_jax.tools.together import asked_once, opened_on_first
from cacherl_jax.tools.tool import Call, Result, specification
from cacherl_jax.tools.untold import answer_told
from cacherl_jax.trajectory import Trajectory


class _Asked(NamedTuple):
    """Turns that came to rest, and their calls, under way."""

    resting: dict[int, Rest]  # why each slot rests
    turns: dict[int, Turn]
    calls: dict[int, Future]  # of the turns that are acted on; nothing where others ask the tools


def make_rollout(
    chat: Chat,
    decoder: Decoder,
    open_session: Callable,
    settings: RolloutSettings,
    root: jax.Array,
    rows: int | None = None,
    call_format: CallFormat = HERMES,
) -> Callable[..., tuple[Trajectory, list[Episode]]]:
    """rollout(params, groups, step) -> (Trajectory, episodes), both group-major.

    `open_session(task_id, tools, start, sample)` gives what answers the calls of one episode.  The
    trajectory always has `rows` rows (default: as many as there are episodes); those without an
    episode have length 0.
    """

    @jax.jit
    def row_keys(step, tasks, samples):
        address = jax.vmap(lambda task, sample: keys.stream(root, 'sample', step, task, sample))
        return address(tasks, samples)

    def rollout(params, groups: Sequence[Task], step: int):
        opened = opened_on_first(open_session)
        table = _Table(chat, decoder, opened, settings, call_format, row_keys)
        return table.play(params, groups, step, rows)

    return rollout


class _Table:
    """The slots of one rollout, the tasks waiting for them, and the rows they leave."""

    def __init__(self, chat, decoder, open_session, settings, call_format, row_keys):
        self.chat, self.decoder, self.open_session = chat, decoder, open_session
        self.settings, self.call_format, self.row_keys = settings, call_format, row_keys
        self.seats: dict[int, Seat] = {}
        self.pool = ThreadPoolExecutor(settings.tool_workers)

    def play(self, params, groups, step, rows):
        waiting = collections.deque(
            (group, sample)
            for group in range(len(groups))
            for sample in range(self.settings.samples)
        )
        total = len(waiting)
        rows = max(total, 1) if rows is None else rows
        if total > rows:
            raise ValueError(
                f'{len(groups)} groups of {self.settings.samples} samples need {total} rows, '
                f'there are {rows}; draw at most {rows // self.settings.samples} groups'
            )
        episodes: list[Episode | None] = [None] * total
        params = self.decoder.adopt(params)
        state, store = self.decoder.init(), self.decoder.empty_store(rows)
        prompts: dict[int, Prompt] = {}
        asked = _Asked({}, {}, {})
        with self.pool:
            while waiting or self.seats:
                state = self._seat(params, state, groups, step, waiting, prompts)
                state, resting = self._decode(params, state, asked.resting)
                # Which turns are answered when does not hang on how long their tools take.
                former, asked = asked, self._ask(resting)
                if not self.settings.overlap:
                    former, asked = asked, former
                ended, blocks = self._answer(former, step)
                if ended:
                    store, state = self._leave(store, state, ended, episodes)
                if blocks:
                    for slot, block in blocks.items():
                        self.seats[slot].length += len(block)
                    state = self.decoder.append(params, state, blocks, self._longest())
        return store, episodes

    def _seat(self, params, state, groups, step, waiting, prompts) -> DecodeState:
        """Give waiting episodes their slots; a group's prompt is read once."""
        while waiting and (free := self._free(group := waiting[0][0])):
            if group not in prompts:
                self._read_prompts(params, groups, waiting, prompts)
            taken = []
            for slot in free:
                if waiting and waiting[0][0] == group:
                    taken.append((slot, waiting.popleft()[1]))
            state = self._admit(state, prompts[group], groups[group], step, taken, group)
            if not waiting or waiting[0][0] != group:
                del prompts[group]
        return state

    def _free(self, group) -> list[int]:
        """The slots without an episode whose neighbours, if any, are of this group."""
        share, size = self.decoder.settings.share, self.settings.samples
        held = {slot // share: seat.row // size for slot, seat in self.seats.items()}
        slots = range(self.decoder.settings.slots)
        return [
            slot
            for slot in slots
            if slot not in self.seats and held.get(slot // share, group) == group
        ]

    def _read_prompts(self, params, groups, waiting, prompts):
        """The next prompts that are not read yet, as many as the devices read side by side."""
        coming = dict.fromkeys(group for group, _ in waiting)
        wanted = [group for group in coming if group not in prompts][: self.decoder.beside]
        read = self.decoder.prefill(params, [self._prompt_ids(groups[group]) for group in wanted])
        prompts.update(zip(wanted, read, strict=True))

    def _prompt_ids(self, task) -> list[int]:
        ids = self.chat.prompt_ids(task.messages, [specification(tool) for tool in task.told()])
        room = self.decoder.settings.context_tokens
        if len(ids) >= room:
            raise ValueError(
                f'the prompt of task {task.id} has {len(ids)} tokens and context_tokens is {room}; '
                'raise context_tokens, or offer fewer tools'
            )
        return ids

    def _admit(self, state, prompt, task, step, taken, group) -> DecodeState:
        size = self.settings.samples
        slots = [slot for slot, _ in taken]
        samples = [sample for _, sample in taken]
        nowhere = [self.decoder.settings.slots] * (size - len(slots))
        number = jnp.full(size, keys.name_number(task.id))
        samples = jnp.array(samples + [0] * len(nowhere))
        addresses = self.row_keys(step, number, samples)
        state = self.decoder.admit(state, prompt, jnp.array(slots + nowhere), addresses, samples)
        length = int(jax.device_get(whole(prompt.count)))
        for slot, sample in taken:
            session = self.open_session(task.id, task.tools, task.start, sample)
            row = group * size + sample
            self.seats[slot] = Seat(task, sample, row, session, length, length)
        return state

    def _decode(self, params, state, aside) -> tuple[DecodeState, dict[int, Rest]]:
        """Decode until half of the rows rest, not counting those `aside`.

        Half, because appending to few costs as much as to all.
        """
        running = self.seats.keys() - aside
        while running:
            state, report = self.decoder.segment(params, state, self._longest())
            report = jax.device_get(whole(report))
            for slot, seat in self.seats.items():
                seat.ids += report.ids[slot, : report.count[slot]].tolist()
            resting = {
                slot: Rest(report.status[slot])
                for slot in running
                if report.status[slot] != Rest.RUNNING
            }
            if 2 * len(resting) >= len(running):
                return state, resting
        return state, {}

    def _longest(self) -> int:
        """Most tokens behind a prompt."""
        return max(seat.length + len(seat.ids) - seat.prompt for seat in self.seats.values())

    def _answer(self, asked, step):
        """Wait for the results of calls, say who goes on with which block."""
        ended, blocks = {}, {}
        for slot, turn in self._with_results(asked).items():
            seat = self.seats[slot]
            why, turn, block = self._next(seat, turn, asked.resting[slot])
            seat.turns.append(turn)
            seat.length += len(seat.ids)
            seat.ids = []
            if why is None:
                blocks[slot] = block
            else:
                ended[slot] = Episode(
                    task=seat.task, sample=seat.sample, step=step, turns=tuple(seat.turns),
                    termination=why,
                )  # fmt: skip
        return ended, blocks

    def _turn(self, seat, rest) -> Turn:
        text = self.chat.message_text(seat.ids)
        parsed = parse_turn(text, self.call_format)
        return Turn(
            text=text, thinking=parsed.thinking, content=parsed.content, calls=parsed.calls,
            start=seat.length, stop=seat.length + len(seat.ids), ended=rest is Rest.TURN_ENDED,
        )  # fmt: skip

    def _ask(self, resting) -> _Asked:
        """Parse the turns that came to rest and begin their calls.

        A message cut by a limit is not acted on: what it would have said is not known.
        """
        turns = {slot: self._turn(self.seats[slot], resting[slot]) for slot in sorted(resting)}
        acted = [slot for slot, turn in turns.items() if turn.calls and turn.ended]
        begin = self.pool.submit if is_first() else lambda *_: None
        calls = {slot: begin(_answers, self.seats[slot], turns[slot].calls) for slot in acted}
        return _Asked(resting, turns, calls)

    def _with_results(self, asked) -> dict[int, Turn]:
        played, calls = dict(asked.turns), asked.calls.values()
        answers = asked_once(lambda: [call.result() for call in calls]) if calls else []
        for slot, results in zip(asked.calls, answers, strict=True):
            played[slot] = dataclasses.replace(played[slot], results=results)
        return played

    def _next(self, seat, turn, rest) -> tuple[Termination | None, Turn, list[int]]:
        """Why the episode ends here, or the forced block it goes on with."""
        if rest is Rest.FULL:
            return Termination.CONTEXT_FULL, turn, []
        if rest is Rest.CUT:
            return Termination.MAX_TOKENS, turn, []
        messages = [
            tool_message(call.name if isinstance(call, Call) else 'error', result.text)
            for call, result in zip(turn.calls, turn.results, strict=True)
        ]
        if not turn.calls:
            if seat.answers == len(seat.task.follow_ups):
                return Termination.ANSWERED, turn, []
            turn = dataclasses.replace(turn, user=seat.task.follow_ups[seat.answers])
            messages = [{'role': 'user', 'content': turn.user}]
            seat.answers += 1
        block = self.chat.suffix_ids(messages)
        room = self.decoder.settings.context_tokens - seat.length - len(seat.ids) - len(block)
        full = Termination.CONTEXT_FULL if room < 1 else None
        return past_a_limit(seat, turn, self.settings) or full, turn, block

    def _leave(self, store, state, ended, episodes) -> tuple[Trajectory, DecodeState]:
        """Move finished rows out of their slots, which are free from here on."""
        size, nowhere = self.decoder.settings.slots, store.length.size
        slots = sorted(ended) + [0] * (size - len(ended))
        rows = [self.seats[slot].row for slot in sorted(ended)] + [nowhere] * (size - len(ended))
        store, state = self.decoder.harvest(store, state, jnp.array(slots), jnp.array(rows))
        for slot, episode in ended.items():
            seat = self.seats.pop(slot)
            seat.session.close()
            episodes[seat.row] = episode
        return store, state


def _answers(seat: Seat, calls) -> tuple[Result, ...]:
    return answer_told(seat.session, calls, seat.task.told(seat.answers), seat.task.tools)
