"""Scenarios of a manager that are not played through a server, each with its reason.

They reach behind the manager's interface: into the store's own code, into its files, or at what an operator
does with the whole memory.
"""

import re

from tests.report import parameters_of

_OPERATORS = "an operator's call over all owners: the server's own sweep does it"
_PATCHES = "replaces a part of the store in this process"
_FILES = "reads or edits what the store has written"
_COUNTS = "looks at what is counted while a message is stored, which the server does by its own counter"

APART = {
    "test_the_sweep_archives_and_deletes_by_age": _OPERATORS,
    "test_a_resumed_erasure_leaves_archives_of_what_was_made_since": _OPERATORS,
    "test_an_archive_does_not_take_the_place_of_what_went_on": _PATCHES,
    "test_what_cannot_be_read_is_not_archived_and_so_not_lost": _FILES,
    "test_a_message_that_meets_a_reset_begins_the_conversation_anew": _PATCHES,
    "test_a_store_that_fails_over_notes_does_not_keep_anybody_from_answering": _PATCHES,
    "test_tokens_are_counted_once_when_a_message_comes_in": _COUNTS,
    "test_what_an_estimator_learns_is_applied_to_what_was_counted_before": _COUNTS,
    "test_without_a_budget_the_report_adds_up_what_was_stored": _COUNTS,
    "test_a_count_of_another_counter_is_not_taken_for_ones_own": _COUNTS,
}
"""Test → why it stays in this process."""


def stays_apart(nodeid: str) -> bool:
    """Whether this is such a scenario, about to be played through a server."""
    name = re.sub(r"\[.*", "", nodeid.rpartition("::")[2], flags=re.DOTALL)
    return name in APART and "server" in parameters_of(nodeid)
