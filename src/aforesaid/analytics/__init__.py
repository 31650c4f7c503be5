"""Numbers about conversations: events, roll-ups by day, and reports. They contain no words."""

from typing import Literal, get_args

By = Literal["day", "channel", "client", "agent"]
BY: tuple[By, ...] = get_args(By)
