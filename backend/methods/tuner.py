"""Tunes and configures a cache between passes, in an engine and in the simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from backend import _native
from backend.methods.auto import GRANT, N_LINE, Auto, Decision, Learned, Setting, first_guess
from backend.methods.auto_work import WorkMeter
from backend.methods.catalogue import Method
from backend.methods.copy_cost import CopyCost
from backend.methods.cost import PassCost
from backend.methods.moepic import INTERVAL_TOKENS, Configurator
from backend.text import text


class Tuned(Protocol):
    """An object to tune: a backend._native.Patch or Core."""

    def tune(self, tuning: _native.Tuning, /) -> None:
        """Take other settings from the next pass on."""

    def snapshot(self) -> bytes:
        """Return the cell of every expert after the last pass; see Patch.snapshot."""


class Tuner:
    """Observes the cost of decoded tokens and tunes the cache as its method says.

    It does nothing for a method that is neither adaptive nor configured and weighs no forecasts.
    An adaptive method has settings and trials of its own for each number of answers that have a
    token in a pass; they begin with the setting of one answer. predicts: whether the method's
    predictor can be made. lines: the decisions of an adaptive method. n_answer: of the present
    pass.
    """

    def __init__(
        self,
        method: Method,
        shape: _native.Shape,
        *,
        predicts: bool,
        configure_tokens: int = INTERVAL_TOKENS,
    ) -> None:
        self._names = [eviction.name for eviction in method.evictions]
        self._shape = shape
        self._tuned: Tuned | None = None
        self._work: WorkMeter | None = None
        self._max_depth = method.depth if predicts else 0
        self._configurator: Configurator | None = None
        self._copy_cost: CopyCost | None = None
        if method.weighs:
            sizes = [shape.expert_bytes(n) for n in range(shape.n_layer)]
            self._copy_cost = CopyCost(sum(sizes) / len(sizes))
        self._setting = Setting(predicts, max(method.depth, 1), self._names[0])
        self._autos: dict[int, Auto] = {}  # by the number of answers
        if method.adaptive:
            guess = first_guess(self._names, self._max_depth)
            self._autos[1] = Auto(self._names, self._max_depth, guess)
        if method.configured:
            self._configurator = Configurator(shape, configure_tokens)
        self.n_answer = 1
        self._lines: list[str] = []

    @property
    def statistics(self) -> _native.MoepicStatistics | None:
        """The statistics that the core of a configured method fills."""
        return None if self._configurator is None else self._configurator.statistics

    @property
    def observes(self) -> bool:
        """Whether it needs the cost of passes."""
        parts = (self._configurator, self._copy_cost)
        return bool(self._autos) or any(part is not None for part in parts)

    @property
    def lines(self) -> tuple[str, ...]:
        """The decisions, a sentence each."""
        return tuple(self._lines)

    @property
    def learned(self) -> Learned | None:
        """Settings that an adaptive method has learned from single answers, for the next time."""
        return self._autos[1].learned if self._autos else None

    def learned_from(self, data: object) -> Learned | None:
        """Return Learned.from_json() for this method."""
        return Learned.from_json(data, self._names, self._max_depth)

    def attach(
        self, tuned: Tuned, n_slot: int, why: str = "", learned: Learned | None = None
    ) -> None:
        """Tune this object from now on. Its cache has n_slot experts per layer and is empty.

        why: begins the line about it, except for the first object. learned: the settings known for
        such a cache; None: nothing.
        """
        is_first = self._work is None
        self._tuned = tuned
        self.n_answer = 1
        if not self._autos:
            return self._tune() if self._copy_cost is not None else None
        auto = self._autos[1]
        self._autos = {1: auto}
        self._work = WorkMeter(self._shape.n_layer, self._shape.n_expert, n_slot)
        if is_first and learned is None:
            self._decide(Decision(auto.setting, ""))
        else:
            self._decide(auto.restart(why or text("auto.cache_changed"), learned))
        return None

    def detach(self) -> None:
        """Release the tuned object, which keeps the model's file open.

        Keep the learned settings.
        """
        self._tuned = None

    def begin_pass(self, n_answer: int) -> None:
        """Tune for a pass with one token of each of n answers."""
        if n_answer == self.n_answer:
            return
        self.n_answer = n_answer
        if not self._autos:
            return
        if n_answer not in self._autos:  # its trials are paid by its own passes
            learned = Learned(self._autos[1].kept, spent=GRANT)
            self._autos[n_answer] = Auto(self._names, self._max_depth, learned)
        if self._autos[n_answer].setting != self._setting:
            self._decide(Decision(self._autos[n_answer].setting, ""))

    def observe(self, cost: PassCost, wave_s: float) -> str:
        """Observe the cost of a pass with decoded tokens, which counts as one token.

        Return the decision, or "". wave_s: seconds spent computing its experts.
        """
        if self.n_answer == 1:  # these two fit the cost of one token
            if self._configurator is not None:
                self._configurator.observe(cost, wave_s)
            if self._copy_cost is not None and self._copy_cost.observe(cost):
                self._tune()
        if not self._autos:
            return ""
        assert self._tuned is not None and self._work is not None
        work = self._work.count(self._tuned.snapshot())
        decision = self._autos[self.n_answer].observe(replace(cost, work=work))
        return "" if decision is None else self._decide(decision)

    def new_layout(self, budget_bytes: int) -> _native.Layout | None:
        """Return another layout for the cache, or None. Call it between requests."""
        if self._configurator is None or not self._configurator.is_due:
            return None
        layout: _native.Layout = self._configurator.layout(budget_bytes)
        return layout

    def stock(self) -> list[list[int]]:
        """Return the experts that a cache of a new layout keeps first, [layer] by priority.

        MoEpic, section 3.4.2: the cache of a new configuration holds the top C of each layer.
        """
        found = self.statistics
        return [] if found is None else [found.ranked(n) for n in range(self._shape.n_layer)]

    def _decide(self, decision: Decision) -> str:
        """Put a setting into force. Return the line about it, or ""."""
        self._setting = decision.setting
        self._tune()
        line = decision.line
        if line and self.n_answer > 1:
            line = text("auto.jointly", n=self.n_answer, line=line)
        if line:
            self._lines = [*self._lines[1 - N_LINE :], line]
        return line

    def _tune(self) -> None:
        assert self._tuned is not None
        setting, cost = self._setting, self._copy_cost
        self._tuned.tune(
            _native.Tuning(
                setting.prefetch,
                setting.depth,
                _native.Tuning().copy_cost if cost is None else cost.value,
                self._names.index(setting.eviction),
            )
        )
