"""Notes and summary in a context, inserted after the leading system messages.

There they are part of the system prompt in every dialect and precede everything that changes with each turn:
first the notes, which change rarely, then the summary.
"""

from msgspec import Struct
from msgspec.structs import replace

from aforesaid.model.contexts import Context, Report
from aforesaid.model.messages import Message
from aforesaid.notes.records import NotesShown
from aforesaid.windows import WindowPolicy


class ContextExtras(Struct, frozen=True, kw_only=True):
    """Notes and a summary for a context, with their token counts."""

    notes: NotesShown = NotesShown()
    notes_tokens: int = 0
    trouble: str | None = None
    """Why the notes could not be read; None where they could."""
    reserved: int = 0
    """Tokens reserved for a summary, so that the window is not cut again when there is one."""
    summary: Message | None = None
    summary_tokens: int = 0
    summarized: int = 0

    def reserved_in(self, policy: WindowPolicy) -> WindowPolicy:
        """Return the policy with their tokens subtracted from the budget of the request."""
        taken = self.notes_tokens + self.reserved
        if policy.max_tokens is None or not taken:
            return policy
        return replace(policy, prompt_tokens=policy.prompt_tokens + taken)

    def added_to(self, context: Context) -> Context:
        """Return the context with the extras inserted and reported."""
        if self == NOTHING:
            return context
        added = tuple(message for message in (self.notes.message, self.summary) if message is not None)
        at = _leading(context)
        report = self._reported(context.report)
        if not added:
            return context if report == context.report else replace(context, report=report)
        stable = report.stable_prefix
        return replace(
            context,
            messages=(*context.messages[:at], *added, *context.messages[at:]),
            report=replace(report, stable_prefix=stable + len(added) if stable >= at else stable),
        )

    def _reported(self, report: Report) -> Report:
        budgeted = report.max_tokens is not None
        tokens = replace(
            report.tokens,
            prompt=report.tokens.prompt - (self.notes_tokens + self.reserved if budgeted else 0),
            notes=self.notes_tokens,
            summary=self.summary_tokens,
        )
        return replace(
            report,
            notes=self.notes.shown,
            notes_left_out=self.notes.left_out,
            summarized=self.summarized,
            tokens=tokens,
            warnings=(*report.warnings, self.trouble) if self.trouble else report.warnings,
        )


NOTHING = ContextExtras()


def _leading(context: Context) -> int:
    """Return the number of leading system messages."""
    roles = (message.role for message in context.messages)
    return next((at for at, role in enumerate(roles) if role != "system"), len(context.messages))
