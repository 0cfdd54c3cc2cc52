"""Draws the pictures of architecture.md: the life of a pass and the life of an answer.

    python docs/images/architecture.py

A picture has a lane for each part of the program, and steps from top to bottom. A step is in one
lane; an arrow leads to the next step of the list, or to those that it names.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
LANE, GAP, TOP, LINE, PAD = 186, 26, 46, 15, 8
FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, QUIET, PAPER, BOX, EDGE, FRAME = (
    "#1d2433", "#5b6577", "#ffffff", "#eef3fb", "#3f6fb5", "#c9d3e3"
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """What happens in a lane. to: the names of the steps behind it, if not the next of the list.

    says: what goes along the arrow to another lane.
    """

    lane: int
    text: str
    name: str = ""
    to: tuple[str, ...] | None = None
    says: str = ""


@dataclass(frozen=True)
class Picture:
    """Lanes by name, steps, and the first and last step of a part that repeats, with its words."""

    title: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]
    repeats: tuple[int, int, str]


PASS = Picture(
    "The life of a pass",
    ("Runner, Scheduler", "llama.cpp", "live: the patch", "core: decisions", "live: copies"),
    (
        Step(0, "Scheduler.plan: who takes\npart, with which tokens"),
        Step(0, "Passes.compute\n(llama_decode)"),
        Step(2, "the pass begins", says="PassBegan"),
        Step(3, "forecasts; experts known\nfrom the token", says="Copy"),
        Step(4, "reads into slots begin", to=("attention",)),
        Step(1, "attention, norms, router", name="attention"),
        Step(2, "reads the router's choice\n(RouterReader)", says="Routed"),
        Step(
            3,
            "hit, late or miss? who\nleaves? what is needed in\nlater layers?",
            says="Copy, Cancel",
        ),
        Step(4, "from the pack or the file,\npast the page cache", says="Copied"),
        Step(3, "what is ready may be\ncomputed", says="Order, Compute"),
        Step(2, "all here: slot numbers\nin place of expert numbers;\nelse waves of what is ready"),
        Step(1, "multiplies the experts\nwith its own kernels"),
        Step(2, "the layer is done", says="Computed"),
        Step(3, "its experts may leave"),
        Step(0, "logits finite? files the\nsame? costs to the Meter"),
        Step(0, "each Sequence samples"),
    ),
    (5, 13, "for each layer"),
)

ANSWER = Picture(
    "The life of an answer",
    ("window or program", "worker: its threads", "Engine", "Runner: the loop", "OpenAnswer"),
    (
        Step(0, "a question: a message\nof the pipe, or HTTP"),
        Step(1, "a Request with its Handle;\na cancel counts from here"),
        Step(1, "waits in its client's turn", says="submit"),
        Step(2, "renders the conversation\nin the format's process"),
        Step(2, "tokens, images, grammar;\na stopped answer goes on", says="Sequence"),
        Step(3, "waits for cells; takes the\nbeginning that is there"),
        Step(3, "pieces of the prompt,\nbeside tokens of others", says="rows"),
        Step(4, "samples a token, within\nits grammar; guesses more"),
        Step(
            4,
            "stop texts, control tokens;\na thread splits the text",
            to=("told", "end"),
            says="Delta",
        ),
        Step(1, "in batches, 25 times a\nsecond, or as a stream", name="told", says="text"),
        Step(0, "shows it; may cancel", to=("end",), says="Handle.cancel"),
        Step(3, "ends: stop, length, call,\ncontext or cancelled", name="end", says="Handle.ended"),
        Step(2, "keeps a cancelled answer;\ncompares two experts"),
        Step(1, "writes the states: idle, or\nbetween passes of others"),
    ),
    (6, 10, "for each pass"),
)


def draw(picture: Picture) -> str:
    """Return a picture as SVG."""
    width = GAP + len(picture.lanes) * (LANE + GAP)
    places, y = [], TOP + 26
    for number, step in enumerate(picture.steps):
        is_border = number in (picture.repeats[0], picture.repeats[1] + 1)
        y += 14 if is_border else 0
        height = (step.text.count("\n") + 1) * LINE + PAD
        places.append((GAP + step.lane * (LANE + GAP), y, height))
        y += height + 20
    parts = [
        f"<rect width='{width}' height='{y}' fill='{PAPER}'/>",
        *(_lane(i, name, y) for i, name in enumerate(picture.lanes)),
        _frame(picture, places, width),
        *(_arrows(picture, places)),
        *(_box(step, place) for step, place in zip(picture.steps, places, strict=True)),
    ]
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {y}' width='{width}' "
        f"height='{y}' role='img' {FONT} font-size='12' fill='{INK}'>"
    )
    marker = (
        f"<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' "
        f"markerHeight='7' orient='auto'><path d='M0 0 L8 4 L0 8 z' fill='{EDGE}'/></marker></defs>"
    )
    return "\n".join([head, f"<title>{escape(picture.title)}</title>", marker, *parts, "</svg>\n"])


def _lane(number: int, name: str, height: int) -> str:
    x = GAP + number * (LANE + GAP) + LANE // 2
    return (
        f"<text x='{x}' y='{TOP - 18}' text-anchor='middle' font-weight='bold'>{escape(name)}"
        f"</text><path d='M{x} {TOP - 8} V{height - 10}' stroke='{FRAME}' stroke-dasharray='3 5'/>"
    )


def _frame(picture: Picture, places: list[tuple[int, int, int]], width: int) -> str:
    first, last, words = picture.repeats
    top, bottom = places[first][1] - 16, places[last][1] + places[last][2] + 9
    return (
        f"<rect x='8' y='{top}' width='{width - 16}' height='{bottom - top}' rx='8' fill='none' "
        f"stroke='{QUIET}' stroke-dasharray='6 4'/><text x='18' y='{top + 15}' fill='{QUIET}' "
        f"font-style='italic'>{escape(words)}</text>"
    )


def _arrows(picture: Picture, places: list[tuple[int, int, int]]) -> list[str]:
    by_name = {step.name: i for i, step in enumerate(picture.steps)}
    found = []
    for i, step in enumerate(picture.steps):
        behind = [i + 1] if step.to is None else [by_name[name] for name in step.to]
        found += [_arrow(places[i], places[j], step.says) for j in behind if j < len(places)]
    return found


def _arrow(start: tuple[int, int, int], end: tuple[int, int, int], says: str) -> str:
    """Lead from the bottom of a step to the next one below, or from its side to another lane."""
    x0, y0 = start[0] + LANE // 2, start[1] + start[2]
    x1, y1 = end[0] + LANE // 2, end[1]
    if x0 == x1:
        return _path(f"M{x0} {y0} V{y1}")
    side, middle = (start[0] + LANE, 1) if x1 > x0 else (start[0], -1)
    y = start[1] + start[2] // 2
    words = (
        f"<text x='{side + middle * 6}' y='{y - 4}' fill='{QUIET}' font-size='11' "
        f"text-anchor='{'start' if middle > 0 else 'end'}'>{escape(says)}</text>"
        if says
        else ""
    )
    return _path(f"M{side} {y} H{x1} V{y1}") + words


def _path(d: str) -> str:
    return f"<path d='{d}' fill='none' stroke='{EDGE}' stroke-width='1.3' marker-end='url(#tip)'/>"


def _box(step: Step, place: tuple[int, int, int]) -> str:
    x, y, height = place
    lines = "".join(
        f"<text x='{x + LANE // 2}' y='{y + 4 + (i + 1) * LINE - 3}' text-anchor='middle'>"
        f"{escape(line)}</text>"
        for i, line in enumerate(step.text.split("\n"))
    )
    box = f"<rect x='{x}' y='{y}' width='{LANE}' height='{height}' rx='5' fill='{BOX}' "
    return f"{box}stroke='{EDGE}'/>{lines}"


PICTURES = {"pass.svg": PASS, "answer.svg": ANSWER}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (HERE / name).write_text(draw(picture), encoding="utf-8")
