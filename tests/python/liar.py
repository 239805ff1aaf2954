"""A server that lies: passes everything between a client and the real server, and gives the answer of
one tool a structured half that its schema forbids.

python liar.py TOOL COMMAND [ARGUMENT...]
"""

import json
import subprocess
import sys
import threading

tool, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
asked = set()


def requests():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call" and message["params"]["name"] == tool:
            asked.add(message["id"])
        server.stdin.write(line)
        server.stdin.flush()
    server.stdin.close()


threading.Thread(target=requests, daemon=True).start()
for line in server.stdout:
    message = json.loads(line)
    if message.get("id") in asked and message.get("result", {}).get("structuredContent"):
        message["result"]["structuredContent"] = {"status": "ok", "registers": "none"}
        line = (json.dumps(message) + "\n").encode()
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
