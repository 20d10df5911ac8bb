"""The training command with a policy that calls tools, as a program; test_distributed.py starts it.

several_processes_run.py OUT WORDS...: the words are train.py's; at the end, how often a tool ran in
this process goes to OUT.
"""

import dataclasses
import pathlib
import sys

from test_tasks_new_suite import ADDITION

from cacherl_jax.chat.template import Chat
from cacherl_jax.compose import agent
from cacherl_jax.tools.tool import tool
from experiments import train

asked = []  # the arguments of every execution in this process


def add(left: int, right: int) -> dict:
    """Add two numbers."""
    asked.append((left, right))
    return {'sum': left + right}


class Asking(Chat):
    """Reads whatever the policy wrote as a call or as an answer, as the sum of its tokens says."""

    def message_text(self, ids):
        if sum(ids) % 4 == 0:
            return f'It is {sum(ids) % 50}.'
        arguments = f'{{"left": {10 + sum(ids) % 3}, "right": {10 + len(ids) % 3}}}'
        return f'<tool_call>\n{{"name": "add", "arguments": {arguments}}}\n</tool_call>'


def load_asking(config):
    """The agent, its messages shorter and read in this way."""
    loaded = agent.load_agent(config)
    ends = (*loaded.chat.end_ids, *range(500, 1500))
    return dataclasses.replace(loaded, chat=Asking(tokenizer=loaded.chat.tokenizer, end_ids=ends))


def main():
    out = pathlib.Path(sys.argv.pop(1))
    agent.SUITES = (dataclasses.replace(ADDITION, tools=((tool(add),),) * 3),)
    train.load_agent = load_asking
    train.main()
    out.write_text(str(len(asked)))


if __name__ == '__main__':
    main()
