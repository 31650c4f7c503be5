"""What a context holds besides the log, and where: behind the system messages that it opens with.

There it is a part of the system prompt in every dialect, and stands in front of everything that changes from
turn to turn. Below: notes, windows. Above: the manager.
"""

from msgspec import Struct
from msgspec.structs import replace

from recollect.contexts import Context
from recollect.notes import NotesShown
from recollect.windows import WindowPolicy


class Beside(Struct, frozen=True, kw_only=True):
    """Notes for a context, and what they cost."""

    notes: NotesShown = NotesShown()
    tokens: int = 0
    trouble: str | None = None
    """Why there are none, where they could not be read."""

    def reserved_in(self, policy: WindowPolicy) -> WindowPolicy:
        """The policy with their room taken out of the budget of the whole request."""
        if policy.max_tokens is None or not self.tokens:
            return policy
        return replace(policy, prompt_tokens=policy.prompt_tokens + self.tokens)

    def added_to(self, context: Context) -> Context:
        """The context with them in their place, and with a report that says so."""
        message = self.notes.message
        report = context.report
        if self.trouble is not None:
            report = replace(report, warnings=(*report.warnings, self.trouble))
        if message is None:
            shown = replace(report, notes_left_out=self.notes.left_out)
            return replace(context, report=shown) if shown != context.report else context
        reserved = self.tokens if report.max_tokens is not None else 0
        at = _leading(context)
        return replace(
            context,
            messages=(*context.messages[:at], message, *context.messages[at:]),
            report=replace(
                report,
                notes=self.notes.shown,
                notes_left_out=self.notes.left_out,
                tokens=replace(report.tokens, prompt=report.tokens.prompt - reserved, notes=self.tokens),
                stable_prefix=report.stable_prefix + (report.stable_prefix >= at),
            ),
        )


def _leading(context: Context) -> int:
    """How many system messages the context opens with."""
    roles = (message.role for message in context.messages)
    return next((at for at, role in enumerate(roles) if role != "system"), len(context.messages))
