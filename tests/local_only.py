"""Tests of a manager that do not run through a server, each with its reason.

They look behind the manager's interface: at the store's code, at its files, or at what an operator does with
the whole memory.
"""

import re

from tests.report import parameters_of

_OPERATOR = "an operator's call over all owners; the server's own sweep does it"
_PATCH = "replaces a part of the store in this process"
_FILES = "reads or edits what the store has written"
_COUNTS = "reads token counts, which the server takes with its own counter"

LOCAL_ONLY = {
    "test_the_sweep_archives_and_deletes_by_age": _OPERATOR,
    "test_a_resumed_erasure_leaves_archives_of_what_was_made_since": _OPERATOR,
    "test_an_archive_does_not_take_the_place_of_what_went_on": _PATCH,
    "test_what_cannot_be_read_is_not_archived_and_so_not_lost": _FILES,
    "test_a_message_that_meets_a_reset_begins_the_conversation_anew": _PATCH,
    "test_a_store_that_fails_over_notes_does_not_keep_anybody_from_answering": _PATCH,
    "test_tokens_are_counted_once_when_a_message_comes_in": _COUNTS,
    "test_what_an_estimator_learns_is_applied_to_what_was_counted_before": _COUNTS,
    "test_without_a_budget_the_report_adds_up_what_was_stored": _COUNTS,
    "test_a_count_of_another_counter_is_not_taken_for_ones_own": _COUNTS,
}
"""Test name → reason."""


def is_excluded(nodeid: str) -> bool:
    """Whether this is such a test, parametrised to run through a server."""
    name = re.sub(r"\[.*", "", nodeid.rpartition("::")[2], flags=re.DOTALL)
    return name in LOCAL_ONLY and "server" in parameters_of(nodeid)
