"""The adaptive method in synthetic worlds: machines and models whose best setting is known."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from backend import _native
from backend.engine.learned_settings import LearnedSettings
from backend.methods.auto import Auto, Decision, Learned, Setting
from backend.methods.auto_trial import SURE, SURE_AGAIN, Noise, Trial, expected_loss, middle
from backend.methods.auto_work import WorkMeter
from backend.methods.catalogue import METHODS
from backend.methods.cost import PassCost
from backend.methods.tuner import Tuner

REACTIVE = Setting()
PREFETCH = Setting(prefetch=True)
SETTINGS = [
    Setting(prefetch, 1, eviction) for prefetch in (False, True) for eviction in ("lru", "other")
]


@dataclass(frozen=True)
class Luck:
    """The random conditions of a token, the same for every setting."""

    link: float
    work: float
    noise: float


@dataclass(frozen=True)
class World:
    """A drive, a model and its routing; times in seconds, sizes in bytes."""

    misses: float = 0.25
    other_misses: float = 0.25  # with the eviction called "other"
    covered: float = 0.7  # share of the misses that are forecast
    precision: float = 0.8  # share of a forecast that is right
    link: float = 2e9
    compute_s: float = 0.019
    n_request: int = 96
    expert_bytes: int = 2_600_000

    def luck(self, seed: int, n_token: int) -> list[Luck]:
        """Draw the conditions of each token: a drifting drive, unequal work, hiccups."""
        dice = random.Random(seed)
        luck, drive, work = [], 0.0, 0.0
        for _ in range(n_token):
            drive = 0.98 * drive + 0.2 * dice.gauss(0, 1)
            work = 0.7 * work + 0.7 * dice.gauss(0, 1)
            noise = math.exp(dice.gauss(0, 0.08)) * (4 if dice.random() < 0.005 else 1)
            luck.append(Luck(math.exp(0.08 * drive), math.exp(0.15 * work), noise))
        return luck

    def cost(self, setting: Setting, luck: Luck) -> PassCost:
        """Return the cost of a token with this setting."""
        share = self.misses if setting.eviction == "lru" else self.other_misses
        n_miss = min(self.n_request * share * luck.work, self.n_request)
        expert_s = self.expert_bytes / self.link * luck.link
        useful = wasted = 0.0
        if setting.prefetch:
            useful = n_miss * self.covered * 0.75
            wasted = useful * (1 / self.precision - 1)
        hidden_s = (useful + wasted) * expert_s
        stall_s = (n_miss - useful) * expert_s + max(0.0, hidden_s - 0.8 * self.compute_s)
        wall_s = (self.compute_s + stall_s) * luck.noise
        return PassCost(
            n_token=1,
            wall_s=wall_s,
            compute_s=self.compute_s * luck.noise,
            stall_s=stall_s * luck.noise,
            link_busy_s=min((n_miss + wasted) * expert_s, wall_s),
            bytes_read=int((n_miss + wasted) * self.expert_bytes),
            prefetches_useful=round(useful),
            prefetches_wasted=round(wasted),
            hits=round(self.n_request - n_miss),
            misses=round(n_miss),
            work=self.n_request * self.misses * luck.work,
        )


def live(auto: Auto, world: World, luck: list[Luck]) -> tuple[list[float], list[Setting]]:
    """Decode with the settings of `auto`. Return the seconds and the kept setting of each token."""
    seconds, kept = [], []
    for chance in luck:
        window = world.cost(auto.setting, chance)
        before = auto.setting
        decision = auto.observe(window)
        assert (decision.setting if decision else before) == auto.setting
        seconds.append(window.wall_s)
        kept.append(auto.kept)
    return seconds, kept


def changes(kept: list[Setting]) -> int:
    """Return how often the kept setting changed."""
    return sum(a != b for a, b in itertools.pairwise(kept))


WORLDS = {
    "prefetching helps": World(),
    "prefetching hurts": World(misses=0.3, covered=0.3, precision=0.2),
    "nothing matters": World(misses=0.05, other_misses=0.05, covered=0.2),
    "the drive is the limit": World(misses=0.6, other_misses=0.6, precision=0.5, link=1.2e9),
    "the other eviction is better": World(misses=0.3, other_misses=0.25, covered=0.3),
    "the other eviction is worse": World(other_misses=0.32),
    "everything is there": World(misses=0.0, other_misses=0.0),
}


@pytest.mark.parametrize("name", WORLDS)
def test_it_finds_a_setting_as_good_as_the_best(name: str) -> None:
    """Of 2,000 tokens the last 1,000 count as settled."""
    world, n_seed = WORLDS[name], 5
    settled = []
    for seed in range(n_seed):
        luck = world.luck(seed, 2000)
        seconds, kept = live(Auto(("lru", "other")), world, luck)
        fixed = {s: [world.cost(s, chance).wall_s for chance in luck] for s in SETTINGS}
        best_s = min(sum(f[1000:]) for f in fixed.values())
        settled.append(best_s / sum(seconds[1000:]))
        assert sum(fixed[REACTIVE]) / sum(seconds) >= 0.97, "slower than the reactive cache"
        assert changes(kept) <= 6, "it flaps"
    assert sum(settled) / n_seed >= 0.97
    assert min(settled) >= 0.93


def test_it_goes_back_when_another_program_takes_the_drive() -> None:
    early = World(precision=0.7)
    late = replace(early, link=0.5e9, precision=0.2)
    auto = Auto()
    live(auto, early, early.luck(3, 1000))
    assert auto.kept.prefetch
    seconds, kept = live(auto, late, late.luck(4, 2000))
    assert not kept[-1].prefetch
    reactive = [late.cost(REACTIVE, chance).wall_s for chance in late.luck(4, 2000)]
    assert sum(reactive[500:]) / sum(seconds[500:]) >= 0.97
    assert any("tried again" in line for line in auto.lines)


def test_nothing_is_tried_where_nothing_can_be_gained() -> None:
    world = WORLDS["everything is there"]
    auto = Auto(("lru", "other"))
    _, kept = live(auto, world, world.luck(0, 500))
    assert set(kept) == {REACTIVE}
    assert auto.setting == REACTIVE
    assert auto.lines == []


def test_a_terrible_setting_is_dropped_within_a_few_tokens() -> None:
    world = World(covered=0.3, precision=0.05)
    auto = Auto()
    tried = 0
    for chance in world.luck(0, 500):
        tried += auto.setting.prefetch
        auto.observe(world.cost(auto.setting, chance))
    assert 1 <= tried <= 10
    assert auto.kept == REACTIVE
    assert "Prefetching stays off" in auto.lines[0]


def test_without_a_predictor_nothing_is_prefetched() -> None:
    auto = Auto(("lru", "other"), max_depth=0)
    world = WORLDS["the other eviction is better"]
    for chance in world.luck(0, 1500):
        auto.observe(world.cost(auto.setting, chance))
        assert not auto.setting.prefetch
    assert auto.kept.eviction == "other"


def test_a_deeper_forecast_is_tried_only_where_there_is_one() -> None:
    world = World()

    def depths(max_depth: int) -> set[int]:
        auto, seen = Auto(max_depth=max_depth), set()
        for chance in world.luck(0, 1500):
            seen.add(auto.setting.depth)
            auto.observe(world.cost(replace(auto.setting, depth=1), chance))
        return seen

    assert depths(1) == {1}
    assert 2 in depths(2) and 3 not in depths(2)


def test_decisions_are_sentences_with_their_figures() -> None:
    world = WORLDS["the other eviction is better"]
    auto = Auto(("lru", "other"))
    said = []
    for chance in world.luck(1, 3000):
        decision = auto.observe(world.cost(auto.setting, chance))
        if isinstance(decision, Decision) and decision.line:
            said.append(decision.line)
    assert said == auto.lines
    assert said[0].startswith("Prefetching is on: tried over ")
    assert "the drive was idle" in said[0] and "of what was fetched ahead was used" in said[0]
    assert any(
        line.startswith("Now other decides what leaves, instead of lru: tried over ")
        and "% of the experts were there instead of" in line
        for line in said
    )
    for line in said:
        assert re.fullmatch(r"[A-Z][^.]*\.", line) and re.search(r"\d", line), line


def test_after_a_restart_all_is_tried_again_from_what_is_kept() -> None:
    world = World()
    auto = Auto()
    live(auto, world, world.luck(0, 1000))
    assert auto.kept.prefetch
    decision = auto.restart("The cache rate changed")
    assert decision.setting == auto.setting == auto.kept
    assert decision.line == "The cache rate changed: the alternatives are tried again."
    n_line = len(auto.lines)
    live(auto, world, world.luck(1, 300))
    assert len(auto.lines) > n_line


def test_a_window_that_says_nothing_changes_nothing() -> None:
    auto = Auto()
    for wall_s in (0.0, -1.0, math.nan, math.inf):
        assert auto.observe(PassCost(n_token=1, wall_s=wall_s)) is None
    assert auto.observe(PassCost(n_token=0, wall_s=1.0)) is None


@pytest.mark.parametrize("n_token", [1, 3, 50])
def test_windows_may_hold_several_tokens(n_token: int) -> None:
    world = World()
    auto = Auto()
    luck = iter(world.luck(0, 400 * n_token))
    for _ in range(400):
        window = PassCost()
        for _ in range(n_token):
            window += world.cost(auto.setting, next(luck))
        auto.observe(window)
    assert auto.kept.prefetch


def test_trials_take_turns_so_that_a_steady_drift_is_no_difference() -> None:
    trial = Trial(Noise(), n_block=4, n_settle=0, allowance=1e9)
    for i in range(1000):
        trial.add(PassCost(n_token=1, wall_s=math.exp(0.01 * i)))
        if trial.verdict is not None:
            break
    assert trial.verdict is not None
    assert not trial.verdict.better
    assert abs(trial.verdict.change) < 0.005


def test_a_trial_ends_when_its_cost_is_spent() -> None:
    trial = Trial(Noise(), n_block=8, n_settle=0, allowance=0.5)
    dice = random.Random(0)
    while trial.verdict is None:
        slower = 1.1 if trial.is_candidate else 1.0
        trial.add(PassCost(n_token=1, wall_s=slower * math.exp(dice.gauss(0, 0.3))))
    assert not trial.verdict.better
    assert not trial.verdict.sure


def test_expected_loss() -> None:
    dice = random.Random(0)
    for change, error in ((0.0, 0.1), (-0.1, 0.05), (0.2, 0.1)):
        sampled = [max(0.0, dice.gauss(change, error)) for _ in range(200_000)]
        assert expected_loss(change, error) == pytest.approx(sum(sampled) / 200_000, abs=0.0005)
    assert expected_loss(0.3, 0.0) == 0.3
    assert expected_loss(-0.3, 0.0) == 0.0


def test_middle_leaves_out_what_is_extreme() -> None:
    assert middle([1, 2, 3]) == 2
    assert middle([1, 1, 1, 1, 1, 1, 1, 900]) == 1


def lru_misses(passes: list[list[set[int]]], n_slot: int) -> list[int]:
    """Return each pass's misses in an LRU cache per layer. A pass's requests have the same age."""
    caches: dict[int, OrderedDict[int, None]] = {}
    missed = []
    for needs in passes:
        n_missed = 0
        for layer, experts in enumerate(needs):
            cache = caches.setdefault(layer, OrderedDict())
            n_missed += len(experts - cache.keys())
            for expert in experts:
                cache.pop(expert, None)
                cache[expert] = None
            while len(cache) > n_slot:
                cache.popitem(last=False)
        missed.append(n_missed)
    return missed


def snapshot_of(needs: list[set[int]], n_expert: int, flag: int) -> bytes:
    """Return cells as Patch.snapshot(): 4, 8 or 12 for a needed expert, 1 for a resident one."""
    return bytes(flag if e in layer else e % 2 for layer in needs for e in range(n_expert))


@pytest.mark.parametrize("n_asked", [1, 5, 40])
def test_a_tokens_work_is_what_lru_would_have_missed(n_asked: int) -> None:
    """One expert per layer and pass, so that no two have the same age."""
    dice = random.Random(0)
    n_expert, n_slot = 12, 4
    passes = [[{min(dice.randrange(12), dice.randrange(12))} for _ in range(3)] for _ in range(200)]
    meter = WorkMeter(3, n_expert, n_slot)
    counts = []
    for i, needs in enumerate(passes):
        counts.append(meter.count(snapshot_of(needs, n_expert, (4, 8, 13)[i % 3])))
        if i % n_asked == 0:
            assert float(counts[-1]) >= 0
    assert [float(c) for c in counts] == lru_misses(passes, n_slot)


def test_work_that_nobody_asks_about_is_still_part_of_the_past() -> None:
    passes = [[{i % 5}] for i in range(300)]
    meter = WorkMeter(1, 8, 5)
    counts = [meter.count(snapshot_of(needs, 8, 4)) for needs in passes]
    assert float(counts[-1]) == 0.0


def test_what_was_given_up_once_needs_more_evidence() -> None:
    def tokens_until_adopted(sure: float) -> int:
        trial = Trial(Noise(), n_block=6, n_settle=0, allowance=1e9, sure=sure)
        dice, n = random.Random(2), 0
        while trial.verdict is None:
            faster = 0.88 if trial.is_candidate else 1.0
            trial.add(PassCost(n_token=1, wall_s=faster * math.exp(dice.gauss(0, 0.2))))
            n += 1
        assert trial.verdict.better
        return n

    assert tokens_until_adopted(SURE_AGAIN) > tokens_until_adopted(SURE)


# What was learned.

METHOD = METHODS["auto"]
SHAPE = _native.Shape(8, 2, [[1 << 20], [1 << 20]])


class Core:
    """Records how it is tuned."""

    def __init__(self) -> None:
        self.tunings: list[_native.Tuning] = []

    def tune(self, tuning: _native.Tuning, /) -> None:
        self.tunings.append(tuning)

    def snapshot(self) -> bytes:
        return bytes(16)


def decode(world: World, n_token: int, learned: Learned | None = None) -> tuple[Auto, set[Setting]]:
    """Return the method after so many tokens, and the settings that were in force."""
    auto = Auto(("lru", "other"), learned=learned)
    seen = set()
    for chance in world.luck(0, n_token):
        seen.add(auto.setting)
        auto.observe(world.cost(auto.setting, chance))
    return auto, seen


@pytest.mark.parametrize("name", ["prefetching helps", "prefetching hurts"])
def test_what_was_learned_holds_from_the_first_token(name: str) -> None:
    world = WORLDS[name]
    first, seen = decode(world, 1000)
    assert first.learned.refused and {setting.prefetch for setting in seen} == {False, True}
    kept = Learned.from_json(json.loads(json.dumps(first.learned.to_json())), ("lru", "other"), 1)
    assert kept == first.learned
    again, seen = decode(world, 96, kept)
    assert {setting.prefetch for setting in seen} == {first.kept.prefetch}
    assert again.kept == first.kept


def test_the_cost_of_trials_counts_after_the_next_loading() -> None:
    """A bad move that is not yet refused waits until the tokens allow for it."""
    _, seen = decode(WORLDS["prefetching hurts"], 40, Learned(REACTIVE, spent=3.5))
    assert seen == {REACTIVE}
    _, seen = decode(WORLDS["prefetching hurts"], 40, Learned(REACTIVE))
    assert len(seen) > 1


def test_a_refused_move_is_tried_again_in_the_end() -> None:
    world = WORLDS["prefetching helps"]
    wrong = Learned(REACTIVE, {"prefetch True": 512, "eviction other": 512})
    assert decode(world, 500, wrong)[0].kept == REACTIVE
    assert decode(world, 2000, wrong)[0].kept.prefetch


def test_another_cache_of_which_much_is_known_goes_on_with_it() -> None:
    auto, world = Auto(("lru", "other")), World()
    live(auto, world, world.luck(0, 300))
    learned = Learned(Setting(eviction="other"), {"prefetch True": 1000})
    assert auto.restart("The cache rate is 25 %", learned) == Decision(learned.setting, "")
    _, kept = live(auto, world, world.luck(1, 500))
    assert not any(setting.prefetch for setting in kept)


GOOD = {"setting": vars(REACTIVE), "refused": {"reactive": 512}, "spent": 1.5}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"setting": vars(REACTIVE)},
        {**GOOD, "setting": {**vars(REACTIVE), "depth": 3}},
        {**GOOD, "setting": {**vars(REACTIVE), "depth": True}},
        {**GOOD, "setting": {**vars(REACTIVE), "eviction": "none"}},
        {**GOOD, "setting": {**vars(REACTIVE), "eviction": ["lru"]}},
        {**GOOD, "setting": {**vars(REACTIVE), "prefetch": 1}},
        {**GOOD, "setting": {**vars(REACTIVE), "more": 1}},
        {**GOOD, "refused": {"reactive": -1}},
        {**GOOD, "refused": {"reactive": 1e9}},
        {**GOOD, "refused": 7},
        {**GOOD, "spent": math.nan},
        {**GOOD, "spent": "1 token"},
    ],
)
def test_what_is_damaged_is_not_used(data: object) -> None:
    assert Learned.from_json(GOOD, ("lru",), 2) is not None
    assert Learned.from_json(data, ("lru",), 2) is None


def test_without_a_predictor_no_prefetching_is_remembered() -> None:
    learned = Learned(PREFETCH).to_json()
    assert Learned.from_json(learned, ("lru",), 1) is not None
    assert Learned.from_json(learned, ("lru",), 0) is None


@pytest.mark.parametrize("predicts", [False, True])
def test_an_unknown_model_begins_as_the_fastest_method(predicts: bool) -> None:
    core = Core()
    Tuner(METHOD, SHAPE, predicts=predicts).attach(core, 4)
    (tuning,) = core.tunings
    fastest = METHODS["outrider"]
    assert METHOD.evictions[tuning.eviction] == fastest.evictions[0]
    assert tuning.prefetch == predicts
    if predicts:
        assert tuning.depth == fastest.depth


def test_each_number_of_answers_has_settings_and_trials_of_its_own() -> None:
    """Passes of four answers take three times as long, and alternate with those of one."""
    hurts = replace(WORLDS["prefetching hurts"], compute_s=0.06, n_request=300)
    worlds = {1: WORLDS["prefetching helps"], 4: hurts}
    core, tuner = Core(), Tuner(METHOD, SHAPE, predicts=True)
    tuner.attach(core, 4)
    names = [eviction.name for eviction in METHOD.evictions]
    in_force = dict.fromkeys(worlds, core.tunings[-1])
    for n_pass, chance in enumerate(World().luck(0, 1200)):
        n_answer = (1, 4)[n_pass // 3 % 2]
        tuner.begin_pass(n_answer)
        now = in_force[n_answer] = core.tunings[-1]
        setting = Setting(now.prefetch, now.depth, names[now.eviction])
        tuner.observe(worlds[n_answer].cost(setting, chance), 0.0)
    assert (in_force[1].prefetch, in_force[4].prefetch) == (True, False)
    assert tuner.learned is not None and tuner.learned.setting.prefetch
    jointly = [line for line in tuner.lines if line.startswith("With 4 answers at once: ")]
    assert len(jointly) > 0
    tuner.attach(core, 3)  # of another cache nothing is known
    tuner.begin_pass(4)
    assert core.tunings[-1].prefetch


def test_settings_are_kept_by_model_machine_cache_and_pack(tmp_path: Path) -> None:
    tuner = Tuner(METHOD, SHAPE, predicts=True)
    settings = LearnedSettings(tmp_path / "auto.json")
    key = ["a model", "", "learned", "4 experts", "file", "a machine"]
    assert settings.find(key, tuner) is None and settings.guess(key, tuner) is None
    learned = Learned(Setting(eviction="lru"), {"prefetch True": 700})
    settings.note(key, learned)
    again = LearnedSettings(tmp_path / "auto.json")
    assert again.find(key, tuner) == learned
    for i in range(len(key)):
        other = [*key[:i], "another", *key[i + 1 :]]
        assert again.find(other, tuner) is None
        assert again.guess(other, tuner) == Learned(learned.setting)
    experiment = ["a third", "False (0.9, 1, 0.0)", *key[2:]]
    again.note(experiment, Learned(Setting(True, 2, eviction="lru"), {"reactive": 512}))
    again.note(["a fourth", *experiment[1:]], Learned(Setting(True, 2), {"reactive": 512}))
    assert again.guess(["a fifth", *key[1:]], tuner) == Learned(learned.setting)
    newer = Learned(Setting(True, 2, eviction="decayed"), {"reactive": 512})
    again.note([*key[:3], "5 experts", *key[4:]], newer)
    assert again.guess([*key[:3], "6 experts", *key[4:]], tuner) == Learned(newer.setting)
    again.note(key, newer)
    assert again.find(key, tuner) == newer
    without = Tuner(METHOD, SHAPE, predicts=False)
    assert again.find(key, without) is None  # it cannot prefetch


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 1, "settings": [1]}'])
def test_a_damaged_file_is_as_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "auto.json"
    path.write_text(text)
    settings, key = LearnedSettings(path), ["a model", ""]
    assert settings.guess(key, Tuner(METHOD, SHAPE, predicts=True)) is None
    settings.note(key, Learned(REACTIVE, {"reactive": 512}))
    assert settings.find(key, Tuner(METHOD, SHAPE, predicts=True)) is not None


def test_a_method_that_stopped_prefetching_remembers_it() -> None:
    """Its distance does not matter then, so the way back is one move."""
    world = WORLDS["prefetching hurts"]
    auto = Auto(("lru", "other"), 2, Learned(Setting(True, 2)))
    for chance in world.luck(0, 300):
        auto.observe(world.cost(auto.setting, chance))
        if not auto.kept.prefetch:
            break
    assert auto.kept == REACTIVE and auto.learned.refused == {"prefetch True": 512}
