"""Let the program of the how-to page run with a scripted model."""

import sys
from typing import Any

import strands

from tests.adapters.strands.test_strands import Scripted

# The module, which the class of the same name hides.
module: Any = sys.modules[strands.Agent.__module__]
module.BedrockModel = lambda: Scripted("Agents use tools.")
