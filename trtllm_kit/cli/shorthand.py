"""Groups of verbs of which one may be left out: ``trtkit tune MODEL`` for ``trtkit tune search MODEL``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


def short_for(verb: str) -> type[TyperGroup]:
    """Return a kind of group that takes that verb where none of its verbs is named and no help is asked for."""

    class WithShorthand(TyperGroup):
        """A group that puts the verb in front."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            """Read the words of a command line."""
            if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
                args = [verb, *args]
            return super().parse_args(ctx, args)

    return WithShorthand
