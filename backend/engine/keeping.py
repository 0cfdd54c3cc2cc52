"""Keeps the state of the conversation in the context on the drive, and restores kept ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from backend.engine.kept_states import KeptStates

if TYPE_CHECKING:
    from backend.engine.passes import Passes

_WORTH_TOKENS = 16
"""Tokens that are computed sooner than a piece is looked for and read."""


class Keeping:
    """Writes what the context holds after an answer, a piece at a time, and reads it back.

    Use from the engine's thread. folder: of the states. budget_bytes: of all states; 0: none.
    """

    def __init__(self, passes: Passes, folder: Path) -> None:
        self._passes = passes
        self._states = KeptStates(folder)
        self._owner = ""  # of the conversation in the context; "": it is not kept
        self._root = ""
        self._lacking: list[tuple[str, int, int]] | None = None  # None: not known yet
        self._keys: set[str] = set()

    def close(self) -> None:
        """Finish the piece that is being written."""
        self._states.close()

    @property
    def budget_bytes(self) -> int:
        """The most bytes of the drive that all states take; 0: there are none."""
        return self._passes.loaded.config.kept_mib << 20

    def begin(self, owner: str) -> None:
        """Begin a request. owner: of its conversation; "": it is not kept."""
        self._owner, self._lacking = owner, None

    def restore(self, prompt: Sequence[int]) -> None:
        """Read what is kept of the beginning of a prompt and not in the context.

        A piece that is damaged or does not fit is deleted, and its tokens are computed.
        """
        passes, context = self._passes, self._passes.loaded.context
        wanted = prompt[: n_before_image(prompt)]
        if not self.budget_bytes or len(wanted) - len(passes.tokens) < _WORTH_TOKENS:
            return
        root = passes.loaded.state_root()
        found = self._states.find(root, wanted, whole=not context.n_piece)
        found = [piece for piece in found if piece.end <= context.n_context]
        n_known = sum(piece.n for piece in found)
        if n_known - len(passes.tokens) < _WORTH_TOKENS:
            return
        new = [piece for piece in found if piece.begin + piece.n > len(passes.tokens)]
        for piece, state in self._states.states(new):
            if passes.is_stopped:
                break
            if piece.begin < len(passes.tokens):
                passes.forget_from(piece.begin)
            if not context.set_state(state, piece.end):
                self._states.discard(piece)
                if not context.n_piece:
                    passes.tokens.clear()
                break
            passes.tokens += piece.tokens
        if len(passes.tokens) > n_known:
            passes.forget_from(n_known)

    def step(self) -> bool:
        """Begin to write the next piece, unless one is being written. Return False at the end.

        Takes the time of a copy in memory. Call it between requests.
        """
        if self._states.is_writing:
            return True
        passes, states, owner = self._passes, self._states, self._owner
        if not owner or not self.budget_bytes:
            return False
        tokens = passes.tokens[: n_before_image(passes.tokens)]
        if self._lacking is None:
            root, n_piece = passes.loaded.state_root(), passes.loaded.context.n_piece
            if not root:
                return False
            self._lacking, self._keys = states.missing(owner, root, tokens, n_piece)
        if not self._lacking:
            return False
        parent, begin, end = self._lacking.pop(0)
        state = passes.loaded.context.state(begin, end)
        if not state or not states.make_room(len(state), self.budget_bytes, self._keys):
            self._lacking.clear()
            return False
        states.write(owner, parent, begin, tokens[begin:end], state)
        return True

    def drop(self) -> None:
        """Delete the states of the conversation in the context, which are not to be trusted."""
        if self._owner:
            self.forget(self._owner)

    def forget(self, owner: str) -> None:
        """Delete what only this owner uses, and keep nothing of it until it asks again."""
        if owner == self._owner:
            self._owner = ""
        self._states.forget(owner)

    def obey_budget(self) -> None:
        """Delete what a smaller budget has no room for."""
        if self.budget_bytes:
            self._states.make_room(0, self.budget_bytes, set())
        else:
            self._states.forget_all()


def n_before_image(tokens: Sequence[int]) -> int:
    """Return the number of tokens before the first image."""
    return next((i for i, token in enumerate(tokens) if token < 0), len(tokens))
