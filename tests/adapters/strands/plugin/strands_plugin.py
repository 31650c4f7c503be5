"""Replace the fake repository of the published tests by ours."""

import os
from typing import Any

from tests.fixtures import mock_session_repository  # type: ignore[import-not-found]

from aforesaid.adapters.strands import AforesaidSessionRepository, open_manager


class PluggedRepository(AforesaidSessionRepository):
    def __init__(self) -> None:
        super().__init__(open_manager("memory://", owner="kim"))

    def create_message(self, *given: Any, **more: Any) -> None:
        if not os.environ.get("AFORESAID_BROKEN"):
            super().create_message(*given, **more)


mock_session_repository.MockedSessionRepository = PluggedRepository
