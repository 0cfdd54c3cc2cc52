"""The methods by name. Each is a composition of the core's parts in a few lines.

The catalogue has the five systems of the papers, their baselines, the bounds that only a simulator
can reach, and this project's own methods. docs/methods.md lists their differences from the papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from backend.methods.part import Part, part
from backend.text import Text, text

REACTIVE = part("reactive")
ORDERED = part("ordered")
LRU = part("lru")
UNIFORM = part("uniform")
NEXT_ROUTER = part("next_router")
LEARNED = part("learned", stride=2)


@dataclass(frozen=True)
class Method:
    """A predictor, evictions, schedules and an allocation, with their settings."""

    name: str
    sentence: str
    paper: str
    predictor: Part | None = None
    """None: a reactive cache."""
    fallback: Part | None = None
    """The predictor to use where the first one lacks its weights or readable routers."""
    evictions: tuple[Part, ...] = (LRU,)
    """The first one is in use; an adaptive method may change to another."""
    prefill: Part = ORDERED
    decode: Part = ORDERED
    allocation: Part = UNIFORM
    n_predict: int = 0
    """Experts in a forecast; 0: as many as a token uses, -1: all."""
    n_fetch: int = 0
    """Experts of a forecast that are fetched; 0: all, -1: as many as a token uses."""
    depth: int = 1
    """Prefetch distance: forecasts are fetched for the next `depth` layers."""
    weighs: bool = False
    """Whether experts are fetched ahead where that should save more than it costs, forecast or not
    (core/predict/worth.h); otherwise all forecasts are fetched."""
    prefill_prefetch: bool = True
    """Whether forecasts are fetched during prefill."""
    kind: str = "cached"
    """"cached"; "stock": llama.cpp unpatched; "bound": knows the future, simulator only."""
    adaptive: bool = False
    """Whether backend.methods.auto changes its settings while it runs."""
    configured: bool = False
    """Whether MoEpic's configurator changes the cache's layout while the engine is idle."""

    @property
    def stages(self) -> bool:
        """Whether a prompt's experts may pass through a stage beside the layers' own slots."""
        own_slots = self.allocation.name == UNIFORM.name and not self.allocation.numbers
        return self.prefill.name == ORDERED.name and own_slots and self.kind != "stock"

    @property
    def parts(self) -> str:
        """The parts in one readable line."""
        if self.kind == "stock":
            return "llama.cpp as it is"
        schedule = (
            f"{self.decode}"
            if self.prefill == self.decode
            else f"{self.prefill} in prompts, {self.decode} after"
        )
        evictions = " or ".join(str(e) for e in self.evictions)
        return f"{self.predictor or 'no prediction'}; {evictions}; {schedule}; {self.allocation}"


def _reactive(name: str, sentence: Text, paper: str, eviction: Part) -> Method:
    return Method(name, sentence, paper, evictions=(eviction,), prefill=REACTIVE, decode=REACTIVE)


def _promoe(
    name: str, sentence: Text, paper: str, eviction: Part, *, weighs: bool = True
) -> Method:
    """Return ProMoE's system with this eviction."""
    return Method(
        name,
        sentence,
        paper,
        predictor=LEARNED,
        fallback=NEXT_ROUTER,
        evictions=(eviction,),
        depth=2,
        weighs=weighs,
    )


def _ablation(name: str, sentence: Text, **switches: float) -> Method:
    step = part("ordered", **switches)
    return Method(
        name, sentence, "ProMoE, Figures 12 and 13", NEXT_ROUTER, prefill=step, decode=step
    )


def _klotski_step(name: str, sentence: Text, n_predict: int = 0, reorder: int = 0) -> Method:
    """Return a step of Klotski's ablation, with its placement by layers and without a cache."""
    step = part("expert_major", fill=1, reorder=reorder)
    return Method(
        name,
        sentence,
        "Klotski, Table 3",
        part("correlation", path_length=1),
        prefill=step,
        decode=step,
        allocation=part("klotski"),
        n_predict=n_predict,
    )


_ALL = (
    Method(
        "auto",
        text("method.auto"),
        "this project",
        predictor=LEARNED,
        fallback=NEXT_ROUTER,
        evictions=(part("decayed"), LRU),
        depth=2,
        weighs=True,
        adaptive=True,
    ),
    _promoe(
        "outrider",
        text("method.outrider"),
        "this project, with ProMoE, sections 4 to 6",
        part("decayed"),
    ),
    _promoe(
        "outrider-recall",
        text("method.outrider_recall"),
        "this project, with ProMoE, sections 4 to 6",
        part("recall"),
    ),
    _promoe(
        "promoe",
        text("method.promoe"),
        "ProMoE, sections 4 to 6",
        LRU,
        weighs=False,
    ),
    Method(
        "moepic",
        text("method.moepic"),
        "MoEpic, section 3",
        predictor=NEXT_ROUTER,
        evictions=(part("lcp"),),
        prefill=part("split_pipeline"),
        decode=part("split_pipeline"),
        allocation=part("uniform", top_share=0.5),
        configured=True,
    ),
    Method(
        "moepic-uniform",
        text("method.moepic_uniform"),
        "MoEpic, section 4.4 (ablation)",
        predictor=NEXT_ROUTER,
        evictions=(part("lcp"),),
        prefill=part("split_pipeline"),
        decode=part("split_pipeline"),
        allocation=part("uniform", top_share=0.5),
    ),
    Method(
        "duoserve",
        text("method.duoserve"),
        "DuoServe-MoE, sections 4 and 5",
        predictor=part("expert_mlp"),
        fallback=part("correlation", path_length=1),
        prefill=part("stream"),
        decode=part("ordered", chunks=0, prefetch_after_first=1),
        allocation=part("stream"),
        prefill_prefetch=False,
    ),
    Method(
        "moe-infinity",
        text("method.moe_infinity"),
        "MoE-Infinity, section 4",
        predictor=part("eam"),
        evictions=(part("eam"),),
        allocation=part("one_pool"),
        n_predict=-1,
        n_fetch=-1,
        depth=3,
    ),
    Method(
        "klotski",
        text("method.klotski"),
        "Klotski, sections 5 and 6",
        predictor=part("correlation", path_length=1),
        evictions=(part("decayed"),),
        prefill=part("expert_major", n_stream=8, fill=1),
        decode=part("expert_major", n_stream=8, fill=1),
        weighs=True,
    ),
    _klotski_step("klotski-layers", text("method.klotski_layers"), n_predict=-1),
    _klotski_step("klotski-hot", text("method.klotski_hot")),
    _klotski_step("klotski-order", text("method.klotski_order"), reorder=1),
    Method(
        "lru",
        text("method.lru"),
        "ProMoE, section 7.1 and Figure 12 (Base)",
        evictions=(part("lru", at_access=1),),
        prefill=part("reactive", plain=1),
        decode=part("reactive", plain=1),
    ),
    Method(
        "lru-overlapped",
        text("method.lru_overlapped"),
        "ProMoE, sections 5.1 to 5.3, without its prediction",
    ),
    _reactive(
        "lfu",
        text("method.lfu"),
        "MoEpic, section 2.2 (baseline)",
        part("lfu"),
    ),
    _reactive(
        "static",
        text("method.static"),
        "ProMoE, section 7.1 (Static)",
        part("static"),
    ),
    _reactive(
        "random",
        text("method.random"),
        "a reference of every study",
        part("random"),
    ),
    Method(
        "unified",
        text("method.unified"),
        "ProMoE, section 7.1 (Unified)",
        kind="stock",
    ),
    Method(
        "layer-offload",
        text("method.layer_offload"),
        "ProMoE, section 7.1 (Layer-offload)",
        kind="stock",
    ),
    _ablation(
        "promoe-prefetch",
        text("method.promoe_prefetch"),
        chunks=0,
        early_preemption=0,
        reorder=0,
    ),
    _ablation(
        "promoe-chunks",
        text("method.promoe_chunks"),
        early_preemption=0,
        reorder=0,
    ),
    _ablation(
        "promoe-preempt",
        text("method.promoe_preempt"),
        reorder=0,
    ),
    _ablation("promoe-reorder", text("method.promoe_reorder")),
    Method(
        "belady",
        text("method.belady"),
        "Belady 1966",
        evictions=(part("belady"),),
        prefill=REACTIVE,
        decode=REACTIVE,
        kind="bound",
    ),
    Method(
        "oracle",
        text("method.oracle"),
        "a bound of every study",
        predictor=part("oracle"),
        evictions=(part("belady"),),
        depth=4,
        kind="bound",
    ),
)

METHODS: MappingProxyType[str, Method] = MappingProxyType({m.name: m for m in _ALL})

RUNNABLE: tuple[str, ...] = tuple(m.name for m in _ALL if m.kind != "bound")
"""Methods that an engine can run; the others run only in the simulator."""
CACHED: tuple[str, ...] = tuple(m.name for m in _ALL if m.kind == "cached")
"""Methods that patch llama.cpp's graph."""
