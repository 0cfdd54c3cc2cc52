"""Shows a bench's figures as text for the terminal, as Markdown and as charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.bench.figures import Figures, PhaseFigures, Spread, WayFigures, figures
from backend.simulation.charts import Line, Panel, line_charts

BEGIN, END = "<!-- figures: made by outrider bench -->", "<!-- end of figures -->"


def heading(result: dict[str, Any]) -> str:
    """Describe the model, the machine and the setting in a sentence."""
    model, machine = result["model"], result["machine"]
    cap = f"memory capped at {result['cap_bytes'] / 1e9:.3g} GB" if result["cap_bytes"] else ""
    link = result["link_bytes_per_s"]
    parts = [
        f"{model['name']} ({model['bytes'] / 1e9:.3g} GB, {model['n_moe_layer']} layers of "
        f"{model['n_expert']} experts, {model['n_expert_used']} used)",
        f"{machine['n_core']} cores",
        cap or "memory not capped",
        f"copies throttled to {link / 1e9:.3g} GB/s" if link else "",
        "routing forced by a recorded trace" if result["is_forced"] else "",
        _forecasts(result),
        f"prompts in passes of {result['n_ubatch']} tokens",
        _rounds(result),
    ]
    return f"{result['date']}: " + ", ".join(p for p in parts if p) + "."


def _rounds(result: dict[str, Any]) -> str:
    """Return how many rounds all measured ways have; time can end before the last one asked for."""
    n = min((len(w["turns"]) for w in result["ways"] if not w["error"]), default=0)
    return "1 round" if n == 1 else f"{n} rounds in turn"


def _forecasts(result: dict[str, Any]) -> str:
    if result["accuracy"] is None:
        return ""
    ahead = result.get("lookahead", 1)
    where = "one layer" if ahead == 1 else f"{ahead} layers"
    return f"forecasts {where} ahead right {result['accuracy']:.1%} of the time"


def notes(result: dict[str, Any], found: Figures) -> list[str]:
    """Return the remarks on the result, a sentence each."""
    sentences = list(result["remarks"])
    bandwidth = found.bandwidth_bytes_per_s
    if bandwidth is not None:
        sentences.append(
            f"Copies alone bring {bandwidth.median / 1e9:.2f} GB/s ({bandwidth.low / 1e9:.2f} to "
            f"{bandwidth.high / 1e9:.2f})."
        )
    if found.dense_read_s is not None:
        sentences.append(
            f"Reading the {result['model']['dense_bytes'] / 1e9:.2f} GB of dense weights takes "
            f"{found.dense_read_s:.2f} s."
        )
    if bandwidth is not None and not found.has_compute:
        sentences.append(
            "Where computing alone could not be measured, the way's own computing time replaces it."
        )
    for row in found.rows:
        if row.error:
            sentences.append(f"{_label(row)} was not measured: {row.error}")
    return sentences


def decode_rows(found: Figures, base: WayFigures | None) -> list[list[str]]:
    """Return a header, then a row of decoding and memory for each measured way."""
    speed = ["way", "decode", "cold", "of bound", "x stock", "hits", "late", "miss", "stall"]
    costs = ["link idle", "read", "wasted", "memory", "of plan", "page cache", "load"]
    table = [[*speed, *costs, "first token"]]
    for row in found.rows:
        if row.error or row.decode is None:
            continue
        d, cached = row.decode, row.plan_bytes > 0
        n = d.hits + d.late + d.misses
        table.append(
            [
                _label(row),
                _speed(d.tokens_per_s),
                _number(d.tokens_per_s.cold),
                _percent(d.bound_share),
                _ratio(d, base.decode if base else None),
                *(_percent(x / n) if n else "" for x in (d.hits, d.late, d.misses)),
                f"{d.stall_s * 1e3:.1f} ms" if cached else "",
                _percent(d.idle_share) if cached else "",
                f"{d.bytes_read / 1e6:.0f} MB" if cached else "",
                _percent(d.wasted_share) if cached else "",
                f"{row.peak_rss_bytes / 1e9:.2f} GB",
                f"{row.peak_rss_bytes / row.plan_bytes - 1:+.1%}" if cached else "",
                f"{row.page_cache_bytes / 1e9:.2f} GB" if row.page_cache_bytes else "",
                f"{row.load_s:.2f} s",
                f"{row.first_token_s:.2f} s",
            ]
        )
    return _without_empty(table)


def prompt_rows(found: Figures, base: WayFigures | None) -> list[list[str]]:
    """Return a header, then a row for each way with the figures of each length of prompt."""
    lengths = list(dict.fromkeys(n for row in found.rows for n in row.prefill))
    names = ("token/s", "of bound", "x stock", "read/needed")
    table = [["way", *(f"{n}: {name}" for n in lengths for name in names)]]
    for row in found.rows:
        if row.error or not row.prefill:
            continue
        line = [_label(row)]
        for n in lengths:
            p = row.prefill.get(n)
            if p is None:
                line += [""] * len(names)
                continue
            ratio = _ratio(p, base.prefill.get(n) if base else None)
            needed = f"{p.read_to_needed:.3f}" if row.plan_bytes else ""
            line += [_speed(p.tokens_per_s), _percent(p.bound_share), ratio, needed]
        table.append(line)
    return _without_empty(table)


def _ratio(of: PhaseFigures, base: PhaseFigures | None) -> str:
    return _number(of.tokens_per_s.median / base.tokens_per_s.median) if base else ""


def _label(row: WayFigures) -> str:
    return f"{row.name} {row.rate:.1%}" if row.kind == "outrider" else row.name


def _speed(s: Spread) -> str:
    spread = f" ({_number(s.low)}..{_number(s.high)})" if s.low != s.high else ""
    return _number(s.median) + spread


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def terminal(result: dict[str, Any]) -> str:
    """Return the result as text."""
    found = figures(result)
    base = found.row("stock")
    lines = [heading(result), *notes(result, found)]
    for table in (decode_rows(found, base), prompt_rows(found, base)):
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines.append("")
        for line in table:
            cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
            lines.append("  ".join([line[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)


def markdown(results: Sequence[dict[str, Any]], image: str | None) -> str:
    """Return a table of speeds, the picture, a table of the time beyond the bound, the settings."""
    shown = [(result, figures(result)) for result in results]
    speeds, lost = _table(speed_rows(shown)), _table(lost_rows(shown))
    picture = [f"![Decoding over the cache rate]({image})"] if image is not None else []
    settings = [f"- {' '.join([heading(r), *notes(r, found)])}" for r, found in shown]
    parts = (speeds, picture, lost, settings)
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _table(rows: list[list[str]]) -> list[str]:
    """Return the lines of a table, or none if it has a header only."""
    bars = ["---"] * 2 + ["---:"] * (len(rows[0]) - 2)
    lines = ["| " + " | ".join(line) + " |" for line in (rows[0], bars, *rows[1:])]
    return lines if len(rows) > 1 else []


Shown = Sequence[tuple[dict[str, Any], Figures]]


def speed_rows(shown: Shown) -> list[list[str]]:
    """Return a header, then the speeds and the memory of each measured way.

    The prompt before decoding has no column: the first token tells its time.
    """
    rows = [row for _, found in shown for row in found.rows]
    lengths = list(dict.fromkeys(n for row in rows for n in list(row.prefill)[1:]))
    prompts = [f"prompt of {n}" for n in lengths]
    table = [["memory", "way", "decode", "cold", "x stock", "first token", *prompts, "peak memory"]]
    for result, found in shown:
        base = found.row("stock")
        for row in found.rows:
            if row.error or row.decode is None:
                continue
            speeds = (row.prefill.get(n) for n in lengths)
            table.append(
                [
                    _memory(result),
                    _label(row),
                    _speed(row.decode.tokens_per_s),
                    _number(row.decode.tokens_per_s.cold),
                    _ratio(row.decode, base.decode if base else None),
                    f"{row.first_token_s:.2f} s",
                    *("" if p is None else _speed(p.tokens_per_s) for p in speeds),
                    f"{row.peak_rss_bytes / 1e9:.2f} GB",
                ]
            )
    return _without_empty(table)


def lost_rows(shown: Shown) -> list[list[str]]:
    """Return a header, then where the time of decoding went, for each way with a bound."""
    causes = ["computing slower", "waiting longer", "other", "link idle", "read in vain"]
    table = [["memory", "way", "of bound", *causes]]
    for result, found in shown:
        for row in found.rows:
            d = row.decode
            if row.error or d is None or d.lost is None:
                continue
            shares = (d.bound_share, d.lost.computing, d.lost.waiting, d.lost.other, d.idle_share)
            cells = map(_percent, (*shares, d.wasted_share))
            table.append([_memory(result), _label(row), *cells])
    return table


def _memory(result: dict[str, Any]) -> str:
    return f"{result['cap_bytes'] / 1e9:.3g} GB" if result["cap_bytes"] else "all"


def _without_empty(table: list[list[str]]) -> list[list[str]]:
    """Drop the columns that are empty in all rows."""
    kept = [i for i in range(len(table[0])) if i == 0 or any(line[i] for line in table[1:])]
    return [[line[i] for i in kept] for line in table]


Points = dict[str, list[tuple[float, PhaseFigures]]]  # by method: (cache rate, decoding)


def chart(results: Sequence[dict[str, Any]]) -> str | None:
    """Draw speeds and their bounds over the cache rate as SVG. Return None for a single rate.

    Results of the same model under the same limits share a panel.
    """
    groups: dict[str, tuple[Points, list[WayFigures]]] = {}
    for result in results:
        found = figures(result)
        points, stock = groups.setdefault(_limits(result), ({}, []))
        for row in found.rows:
            if row.kind == "outrider" and row.decode is not None:
                points.setdefault(row.name, []).append((row.rate, row.decode))
        known = {row.name for row in stock}
        stock += [r for r in found.rows if r.kind in ("stock", "fastest") and r.name not in known]
    panels: list[Panel] = []
    for title, (points, stock) in groups.items():
        if any(len(of) > 1 for of in points.values()):
            panels.append(_panel(title, points, stock))
    return line_charts(panels) if panels else None


def _limits(result: dict[str, Any]) -> str:
    cap = f" in {result['cap_bytes'] / 1e9:.3g} GB" if result["cap_bytes"] else ""
    link = result["link_bytes_per_s"]
    return f"{result['model']['name']}{cap}" + (f" at {link / 1e9:.3g} GB/s" if link else "")


def _panel(title: str, points: Points, stock: Sequence[WayFigures]) -> Panel:
    lines = []
    for name, ways in points.items():
        lines.append(Line(name, [(rate, d.tokens_per_s.median) for rate, d in ways]))
        least = [
            (rate, d.bound_tokens_per_s) for rate, d in ways if d.bound_tokens_per_s is not None
        ]
        if least:
            lines.append(Line(f"bound of {name}", least, bound=True))
    last = max(rate for ways in points.values() for rate, _ in ways)
    for row in stock:
        if row.decode is not None and not row.error:
            level = row.decode.tokens_per_s.median
            lines.append(Line(row.name, [(0.0, level), (last, level)], bound=True))
    return Panel(f"Decoding, {title}", "cache rate", "token/s", lines, x_percent=True)


def rewrite(document: Path, results: Sequence[dict[str, Any]]) -> None:
    """Replace the text between the two marks of a Markdown file, and write its chart.

    Create the file if it does not exist. The chart is images/<name>.svg.
    """
    text = document.read_text(encoding="utf-8") if document.exists() else f"{BEGIN}\n{END}\n"
    svg, image = chart(results), None
    if svg is not None:
        image = f"images/{document.stem}.svg"
        (document.parent / "images").mkdir(parents=True, exist_ok=True)
        (document.parent / image).write_text(svg, encoding="utf-8")
    body = markdown(results, image)
    found = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.S)
    if not found.search(text):
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    document.write_text(found.sub(lambda _: f"{BEGIN}\n\n{body}\n{END}", text), encoding="utf-8")
