"""Let the program of the how-to page run with a scripted API on this machine."""

import os
import tempfile
import threading
from pathlib import Path

from tests.adapters.claude_agent_sdk.test_agent import ScriptedApi, variables

api = ScriptedApi({"2 + 2": "4"})
threading.Thread(target=api.serve_forever, daemon=True).start()
for name in [name for name in os.environ if name.startswith(("CLAUDE", "ANTHROPIC"))]:
    del os.environ[name]
os.environ |= variables(api, Path(tempfile.mkdtemp()))
