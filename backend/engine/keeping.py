"""Keeps the conversations in the context on the drive, with the experts that they used.

A kept beginning of a prompt is restored and not computed. When a chat is opened again, the experts
that it used are fetched while nothing else is done. States belong to all bytes of the model's file.
Its digest is computed while nothing else is done; until it is known, nothing is read or written.

A conversation waits to be written from the end of its request on, as long as its sequence holds it:
until nothing else is done, or, as a busy engine never idles, for some time between two passes. It
waits on where the hour has no more room for what it lacks. An engine that is closed writes what
still waits and has room, for a second at most.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from backend import LLAMA_CPP_PYTHON_VERSION
from backend.engine.kept_states import HOUR, Hour, KeptStates, Piece, answers_name, n_equal, root_of
from backend.engine.own_answers import OwnAnswers
from backend.engine.scheduler import n_before_image
from backend.library.digests import Digests
from backend.llama.api import kernels, library_files
from backend.llama.past import before_of, joined_steps
from backend.methods import cells
from backend.protocol.errors import EngineError
from backend.system import faults
from backend.system.paths import digests_file

if TYPE_CHECKING:
    from backend.engine.loaded_model import LoadedModel
    from backend.engine.prediction_layer import PredictionLayer
    from backend.engine.scheduler import Scheduler
    from backend.gguf.identity import FileIdentity
    from backend.packs.file import Pack

_WORTH_TOKENS = 16
"""Number of tokens that take less time to compute than to find and read in a kept piece."""
_LOOK_TOKENS = 4
"""Period in decoded tokens at which the used experts are sampled."""
_WARM_BYTES = 8 << 20
"""Bytes of experts to order at once, and the most that a new request waits for."""
_BUSY_SHARE = 0.05
"""Share of the time of a busy engine in which pieces are copied and written."""
_END_S = 1.0
"""A window waits for twice as long until its worker ends."""
_USED = "experts.used"
_N_USED = 8
"""Number of owners whose used experts may wait to be written."""


class _Passes(Protocol):
    """The part of backend.engine.passes.Passes, which owns this, that it asks."""

    loaded: LoadedModel

    @property
    def is_stopped(self) -> bool: ...
    @property
    def layer(self) -> PredictionLayer | None: ...
    def mind_memory(self) -> None: ...


@dataclass
class _Waiting:
    """A conversation to be written. root: the parent of its first piece; "": not known yet.

    lacking: its pieces that are not on the drive. keys: of all its pieces. is_late: the hour has no
    room for the first of them.
    """

    owner: str
    tokens: list[int]
    root: str = ""
    lacking: list[Piece] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    is_late: bool = False


class Keeping:
    """Writes the states of the context after answers, a piece at a time, and reads them back.

    Use from the engine's thread. folder: of the states. budget_bytes: of all states; 0: none.
    answers: are kept with the states of their owners, so that a prompt finds its states again.
    hour: bounds what is written.
    """

    def __init__(
        self, passes: _Passes, folder: Path, answers: OwnAnswers, hour: Hour = HOUR
    ) -> None:
        self._answers = answers
        answers.read = self._read_answers
        self._passes = passes
        self._states = KeptStates(folder, hour)
        self._waiting: dict[int, _Waiting] = {}  # by sequence, the next one first
        self._writing = -1  # the sequence of the last piece
        self._token_bytes = 0.0  # of the last piece
        self._busy_s = self._copy_s = 0.0  # the end and the length of the last step_between()
        self._digests = Digests(digests_file())
        self._libraries = library_files()
        self._pack: tuple[Pack, str] | None = None  # the last one, and its _pack_digest()
        self._learnt = ""  # the root whose first pieces are known
        self._n_token = 0
        # By owner: [MoE layer * expert], since it was last written.
        self._used: dict[str, NDArray[np.uint32]] = {}
        self._cold: list[tuple[int, int]] = []  # (MoE layer, expert), those to fetch first last
        self._wanted: list[list[int]] = []  # [MoE layer]

    def close(self) -> None:
        """Write what is not on the drive yet, for _END_S at most, and finish the piece begun."""
        faults.guarded("upkeep", self._write_rest, faults.no_place)()
        self._digests.close()
        self._states.close()

    def _write_rest(self) -> None:
        end_s = time.monotonic() + _END_S
        while self._passes.loaded.has_context and time.monotonic() < end_s:
            if not (self._write_answers() or self._write_step() or self._write_used()):
                break
            self._states.settle()

    @property
    def _scheduler(self) -> Scheduler[Any]:
        return self._passes.loaded.scheduler

    @property
    def budget_bytes(self) -> int:
        """The most bytes of the drive that all states take; 0: there are none."""
        return self._passes.loaded.config.kept_mib << 20

    @property
    def is_late(self) -> bool:
        """Whether the hour had no room for something. Call step() again after some time."""
        return any(waiting.is_late for waiting in self._waiting.values())

    def root(self) -> str:
        """Return the parent of the kept states that the context may read; "" while unknown.

        It stands for the bytes of the model and of llama.cpp, and for all that decides which
        kernels compute a pass: their sums differ in their last bits.
        """
        loaded = self._passes.loaded
        file, plan = loaded.file, loaded.plan
        try:
            contents, pack = self._contents(), self._pack_digest()
        except OSError:  # the next pass reports a drive that fails
            return ""
        if not contents:
            return ""
        # Longrope chooses its factors by the length of the context.
        has_factors = any("rope_factors" in tensor.name for tensor in file.tensors)
        placement = plan.placement
        return root_of(
            (
                contents,
                LLAMA_CPP_PYTHON_VERSION,
                kernels(),
                sorted(item for item in os.environ.items() if item[0].startswith("GGML_")),
                loaded.context.arithmetic,
                loaded.context.n_piece,
                plan.n_context if has_factors else 0,
                file.n_expert_used_by_layer,
                plan.device_keys,
                (placement.n_gpu_layers, placement.shares),
                loaded.cache.hybrid,
                loaded.cache.layout,
                (plan.is_plain, plan.repack if plan.is_plain else plan.mapped),
                pack,
            )
        )

    def pause(self) -> None:
        """Let a request begin: nothing is read for digests until the next step()."""
        self._digests.pause()

    def begin(self) -> None:
        """Begin a request."""
        for waiting in self._waiting.values():
            waiting.root = ""  # its sequence may be computed again
        self._cold.clear()
        self._wanted.clear()

    def end(self, sequence: int, tokens: list[int]) -> None:
        """Let a conversation be kept, whose request has ended. tokens: those in the sequence."""
        owner, tokens = self._scheduler.owners[sequence], tokens[: n_before_image(tokens)]
        self._waiting.pop(sequence, None)
        if owner and tokens:
            self._waiting[sequence] = _Waiting(owner, tokens)

    def restore(
        self, prompt: Sequence[int], n: int, n_most: int | None = None, sequence: int = 0
    ) -> int:
        """Read the kept pieces of the beginning of a prompt that the context lacks.

        n: its tokens that the sequence has. n_most: the cells that it may have; None: all. Return
        the tokens that it has now. A piece that is damaged or does not fit is deleted, and its
        tokens are computed.
        """
        passes, context = self._passes, self._passes.loaded.context
        wanted = prompt[: n_before_image(prompt)]
        if not self.budget_bytes or len(wanted) - n < _WORTH_TOKENS:
            return n
        if not (root := self.root()):
            return n
        pieces = self._states.find(root, wanted, context.n_piece)
        n_cell = context.n_context if n_most is None else n_most
        pieces = [piece for piece in pieces if piece.end <= n_cell]
        n_known = sum(piece.n for piece in pieces)
        if n_known - n < _WORTH_TOKENS:
            return n
        new = [piece for piece in pieces if piece.begin + piece.n > n]
        if context.log is not None:
            for piece in pieces:
                context.log.write(
                    "kept", piece.key, piece.parent, piece.begin, piece.tokens, piece.made,
                    piece.checkpoint,
                )  # fmt: skip
        chain = joined_steps((piece.begin, piece.made) for piece in pieces)
        for piece, state in self._states.states(new):
            if passes.is_stopped:
                break
            if piece.begin < n:
                n = piece.begin
                if not context.forget_from(n, sequence):
                    return 0
            steps = before_of(chain, piece.end)
            n_both, whole = len(state) - piece.n_layer, memoryview(state)
            n_state = n_both - piece.n_checkpoint
            if not context.set_state(
                whole[:n_state], piece.end, sequence, begin=piece.begin, steps=steps, key=piece.key
            ):
                self._states.discard(piece)
                break
            n = piece.end
            if piece.checkpoint:
                context.load(whole[n_state:n_both], piece.checkpoint, sequence, key=piece.key)
            if (layer := passes.layer) is not None:
                held = [*wanted[: piece.begin], *piece.tokens]
                layer.restore(whole[n_both:], held[: piece.layer or None], piece.begin, sequence)
        if n > n_known:
            cut = context.forget_from if context.n_piece else context.go_back
            n = n_known if cut(n_known, sequence) else 0
        return n

    def step(self) -> bool:
        """Begin to fetch experts, or to write the next piece. Return False at the end.

        Takes the time of a copy in memory. Call it between requests.
        """
        if self._warm_step() or self._write_answers() or self._digest_step():
            return True
        return self._write_step() or self._write_used()

    def step_between(self) -> None:
        """Begin to write the next piece between two passes, if _BUSY_SHARE leaves time for it.

        A state that is in one piece is too long for that.
        """
        has_piece = self._waiting and self._passes.loaded.context.n_piece
        if self._states.is_writing or not (has_piece or self._answers.unwritten):
            return
        now_s, took_s = time.monotonic(), self._copy_s + self._states.written_s
        if now_s - self._busy_s < took_s / _BUSY_SHARE:
            return
        if not self._write_answers():
            self._write_step()
        self._busy_s = time.monotonic()
        self._copy_s = self._busy_s - now_s

    def note_token(self, owner: str) -> None:
        """Note which experts a decoded token has used that was alone in its pass."""
        self._n_token += 1
        loaded = self._passes.loaded
        if loaded.patch is None or self._n_token % _LOOK_TOKENS:
            return
        if not owner or owner not in self._scheduler.owners.values():  # it was forgotten meanwhile
            return
        is_used = np.frombuffer(loaded.residency(), np.uint8) & cells.FOUND != 0
        n_used = self._used.pop(owner, None)
        if n_used is None or len(n_used) != len(is_used):
            n_used = np.zeros(len(is_used), np.uint32)
        self._used[owner] = n_used + is_used
        if len(self._used) > _N_USED:
            del self._used[next(iter(self._used))]

    def warm(self, owner: str) -> None:
        """Let step() fetch the experts that this owner used most and that are not in memory."""
        loaded, self._cold, self._wanted = self._passes.loaded, [], []
        patch = loaded.patch
        if patch is None or not self.budget_bytes:
            return
        used = self._read_used(owner, loaded.file.n_moe_layer * loaded.file.n_expert)
        used = used.reshape(loaded.file.n_moe_layer, loaded.file.n_expert)
        ranked = np.argsort(-used.astype(np.int64), axis=1, kind="stable")[:, : loaded.cache.n_slot]
        where = np.frombuffer(loaded.residency(), np.uint8).reshape(used.shape) & cells.WHERE
        self._wanted = [[int(e) for e in row if used[i, e]] for i, row in enumerate(ranked)]
        pairs = [(i, e) for i, row in enumerate(self._wanted) for e in row if not where[i, e]]
        self._cold = sorted(pairs, key=lambda pair: used[pair])

    def _warm_step(self) -> bool:
        """Order some experts, unless those before are still in flight. Return False at the end."""
        loaded = self._passes.loaded
        patch = loaded.patch
        if not self._wanted or patch is None:
            return False
        if patch.stock([]):
            return True
        if not self._cold:
            self._wanted.clear()
            return False
        n_all = loaded.file.n_moe_layer * loaded.file.n_expert
        n = max(_WARM_BYTES * n_all // loaded.file.expert_bytes_total, 1)
        experts: list[list[int]] = [[] for _ in self._wanted]
        for layer, expert in (self._cold.pop() for _ in range(min(n, len(self._cold)))):
            experts[layer].append(expert)
        patch.stock(experts, self._wanted)
        return True

    def _contents(self) -> list[str]:
        """Return the digests of the model's parts and of llama.cpp; [] while one is unknown.

        Where only a part's time of change differs from when it was loaded, its content may differ,
        too. It is the same if both states have the same digest.
        """
        files = self._passes.loaded.llama.files
        digests = [self._digests.of(identity) for _, identity in self._libraries]
        for number, (_, first, now) in enumerate(self._parts()):
            before, after = self._digests.of(first), self._digests.of(now)
            if before and after and before != after:
                files.condemn(number)
            digests.append(before if before == after else "")
        return digests if all(digests) else []

    def _parts(self) -> list[tuple[Path, FileIdentity, FileIdentity]]:
        """Return OpenFiles.states of the model's parts."""
        loaded = self._passes.loaded
        states: list[tuple[Path, FileIdentity, FileIdentity]] = loaded.llama.files.states
        return states[: len(loaded.file.paths)]

    def _digest_step(self) -> bool:
        """Go on with the digests that root() needs. Return False at the end.

        The first content of a part that has another time of change since is gone, so it is too late
        for its digest; there are no states then until the model is loaded again.
        """
        if not self.budget_bytes or not self._passes.loaded.has_context:
            return False
        if root := self.root():
            if root != self._learnt:
                self._learnt = root
                self._states.learn(root)
            return False
        parts = self._parts()
        if any(first != now and not self._digests.of(first) for _, first, now in parts):
            return False
        with contextlib.suppress(EngineError):  # the next pass reports it
            self._passes.mind_memory()
        wanted = [(path, now) for path, _, now in parts]
        return self._digests.compute([*self._libraries, *wanted])

    def _pack_digest(self) -> str:
        """Return a digest of the checksums of all experts in the pack; "" where none is used.

        Raises OSError.
        """
        plan = self._passes.loaded.plan
        pack = None if plan.is_plain else plan.tier.pack
        if pack is None:
            return ""
        if self._pack is None or self._pack[0] is not pack:
            self._pack = pack, root_of(pack.sums())
        return self._pack[1]

    def _read_used(self, owner: str, n: int) -> NDArray[np.uint16]:
        """Return how often an owner's tokens used each of n experts; 0 where that is not known."""
        data = self._states.read_note(owner, _USED, self._passes.loaded.file.fingerprint)
        return np.frombuffer(data, "<u2") if len(data) == 2 * n else np.zeros(n, np.uint16)

    def _write_used(self) -> bool:
        """Begin to write the experts used since the last time; older uses count half.

        Return False at the end. REQUIRES: nothing is being written.
        """
        if not self.budget_bytes:
            self._used.clear()
        if not self._used:
            return False
        owner, now = next(reversed(self._used.items()))
        if not self._states.hour.has_room(2 * len(now)):
            return False
        del self._used[owner]
        before = self._read_used(owner, len(now))
        used = np.minimum(before // 2 + now, np.iinfo(np.uint16).max).astype("<u2")
        fingerprint = self._passes.loaded.file.fingerprint
        self._states.write_note(owner, _USED, fingerprint, used.tobytes())
        return True

    def _read_answers(self, owner: str) -> bytes:
        """Return OwnAnswers.packed() of an owner; b"" if nothing is kept."""
        model = self._passes.loaded.file.fingerprint
        return self._states.read_note(owner, answers_name(model), model)

    def _write_answers(self) -> bool:
        """Begin to write the answers that one owner has received. Return False at the end."""
        unwritten, model = self._answers.unwritten, self._passes.loaded.file.fingerprint
        if not self.budget_bytes:
            unwritten.clear()
        if unwritten and not self._states.is_writing:
            owner = unwritten.pop()
            data = self._answers.packed(owner)
            if not self._states.hour.has_room(len(data)):
                unwritten.add(owner)
                return False
            self._states.write_note(owner, answers_name(model), model, data)
            return True
        return bool(unwritten)

    def _write_step(self) -> bool:
        """Begin to write the next piece, unless one is being written. Return False at the end."""
        if self._states.is_writing:
            return True
        if not self._states.wait():  # there is no room, or the drive fails
            self._waiting.pop(self._writing, None)
        if not self.budget_bytes:
            self._waiting.clear()
        root = self.root() if self._waiting else ""
        for sequence, waiting in list(self._waiting.items()) if root else ():
            if self._write_piece(sequence, waiting, root):
                return True
            if not waiting.is_late:
                del self._waiting[sequence]
        return False

    def _write_piece(self, sequence: int, waiting: _Waiting, root: str) -> bool:
        """Begin to write the next piece of a conversation. Return False if none can be.

        It is_late then, if only the hour has no room for the piece.
        """
        waiting.is_late = False
        if sequence in self._scheduler.moved:
            return False  # other kernels may have computed the tokens
        tokens = self._scheduler.tokens_of(sequence)
        states, context = self._states, self._passes.loaded.context
        n_piece = context.n_piece
        if waiting.root != root:
            waiting.root = root
            waiting.tokens = waiting.tokens[: n_equal(waiting.tokens, tokens)]
            steps_of = partial(context.made, sequence=sequence)
            waiting.lacking, waiting.keys = states.missing(
                waiting.owner, root, waiting.tokens, n_piece, steps_of
            )
        if not waiting.lacking:
            return False
        piece = waiting.lacking[0]
        end = piece.end
        if tokens[:end] != waiting.tokens[:end] or not (n_piece or len(tokens) == end):
            return False
        # The next turn writes the whole state again, or the last piece.
        has_room = partial(self._states.hour.has_room, is_passing=len(piece.tokens) != n_piece)
        waiting.is_late = not has_room(int(self._token_bytes * len(piece.tokens)))
        if waiting.is_late or not (state := context.state(piece.begin, end, sequence)):
            return False
        if not n_piece:
            n, checkpoint = context.checkpoint(sequence)
            piece = replace(piece, checkpoint=n, n_checkpoint=len(checkpoint))
            state += checkpoint
        if (layer := self._passes.layer) is not None:
            n = (layer.has_window and piece.checkpoint) or end
            if of_layer := layer.state(tokens[:n], piece.begin, sequence):
                piece = replace(piece, layer=n, n_layer=len(of_layer))
                state += of_layer
        self._token_bytes = len(state) / len(piece.tokens)
        waiting.is_late = not has_room(len(state))
        if waiting.is_late:
            return False
        del waiting.lacking[0]
        self._writing = sequence
        room = partial(states.make_room, len(state), self.budget_bytes, waiting.keys)
        states.write(piece, state, room)
        return True

    def drop(self) -> None:
        """Delete the states of those who are in the context, which are not to be trusted."""
        for owner in set(self._scheduler.owners.values()) - {""}:
            self.forget(owner)

    def forget(self, owner: str) -> None:
        """Delete the states that only this owner uses. Keep no new ones until its next request."""
        if self._passes.loaded.has_context:
            self._scheduler.disown(owner)
        self._waiting = {s: one for s, one in self._waiting.items() if one.owner != owner}
        self._used.pop(owner, None)
        self._states.forget(owner)

    def obey_budget(self) -> None:
        """Delete the states that exceed a smaller budget. Begin to list the remaining ones."""
        if self.budget_bytes:
            self._states.make_room(0, self.budget_bytes, set())
            self._learnt = ""  # by the next step()
        else:
            self._states.forget_all()
