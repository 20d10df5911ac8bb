"""A chat endpoint that plays as the tasks' experts do; a script for tests/judge_server.py."""

import json

from cacherl_jax.tools.tool import Result, Status


def completion(message, finish='stop', **more):
    """A reply's body with one choice."""
    usage = {'prompt_tokens': 7, 'completion_tokens': 3}
    choice = {'message': {'role': 'assistant'} | message, 'finish_reason': finish}
    return 200, json.dumps({'choices': [choice], 'usage': usage} | more)


def tool_call(name, arguments, own='call_a'):
    """One call of a message; arguments that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {'id': own, 'type': 'function', 'function': {'name': name, 'arguments': text}}


def calls(*made):
    """A message that only calls."""
    return completion({'content': None, 'tool_calls': list(made)}, 'tool_calls')


class Experts:
    """Answers by the expert of the task whose request opens the conversation.

    Nothing is kept between requests: the expert is played again up to where the messages are.
    """

    def __init__(self, tasks):
        self.tasks = {task.messages[-1]['content']: task for task in tasks}

    def __call__(self, body):
        opening = next(m['content'] for m in body['messages'] if m['role'] == 'user')
        expert = self.tasks[opening].expert()
        said, results = next(expert), []
        for message in body['messages']:
            if message['role'] == 'tool':
                results.append(Result(status=Status.OK, text=message['content']))
            if said.calls and len(results) == len(said.calls):
                said, results = expert.send(tuple(results)), []
        if not said.calls:
            return completion({'content': said.content})
        own = f'{len(body["messages"])}'
        made = [
            tool_call(call.name, dict(call.arguments), f'{own}-{place}')
            for place, call in enumerate(said.calls)
        ]
        return completion({'content': said.content or None, 'tool_calls': made}, 'tool_calls')
