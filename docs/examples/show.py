"""Prints the messages of a chat request body (standard input) for people to read; of a long text LINES lines, the first ones.

compactd preview request.json --body | python3 docs/examples/show.py [LINES]
"""

import json
import sys

most = int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize
for message in json.load(sys.stdin)["messages"]:
    calls = [f"{call['function']['name']} {call['function']['arguments']}" for call in message.get("tool_calls") or ()]
    lines = [*(message["content"] or "").splitlines(), *calls]
    if len(lines) > most:
        lines[most:] = [f"[… {len(lines) - most} more lines]"]
    print(f"{message['role']:>9} | " + "\n          | ".join(lines))
