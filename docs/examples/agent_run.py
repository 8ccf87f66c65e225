"""A made agent's run as one request body: a question, then rounds of reading files, and now and then a new question.

    python3 docs/examples/agent_run.py [ROUNDS] [ROUNDS_PER_QUESTION] > run.json

The same arguments give the same bytes. The model is called `example-1`, so that a configuration can give it any window.
"""

import json
import random
import sys

WORDS = (  # noqa: SIM905
    "order invoice ledger total rounding currency customer shipment refund discount tax line price cent queue retry"
).split()


def text(seed, words):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(words))


def file(number):
    lines = [f"{at:4d}  {text(number * 1000 + at, 11)}" for at in range(1, 81)]
    return "\n".join([f"# src/module_{number}.py, revision {number * 7919 % 10007}", *lines])


def messages(rounds, per_question):
    yield {"role": "system", "content": "You repair a billing service. Read before you change."}
    for number in range(rounds):
        if number % per_question == 0:
            if number:
                yield {
                    "role": "assistant",
                    "content": f"Ticket T-{4000 + number - per_question} is done: {text(number, 25)}.",
                }
            yield {
                "role": "user",
                "content": f"Ticket T-{4000 + number}: {text(-number - 1, 30)}. Keep to rule R-{number + 17}.",
            }
        arguments = json.dumps({"path": f"src/module_{number}.py"})
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": file(number)}


rounds, per_question = (int(given) for given in [*sys.argv[1:], *["80", "10"][len(sys.argv) - 1 :]])
json.dump({"model": "example-1", "messages": list(messages(rounds, per_question))}, sys.stdout)
