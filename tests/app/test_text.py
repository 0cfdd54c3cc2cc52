"""Formulas, colours of code, and long texts in pieces."""

import itertools
import random
import unicodedata
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt, QUrl
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QPushButton

from app.chat.code_card import PART_LINES, CodeCard
from app.chat.markdown import highlight
from app.chat.markdown.blocks import PROSE_LINES, BlockSplitter
from app.chat.markdown.latex import readable, replace_math
from app.chat.text_block import TextBlock
from app.state.context_fit import fit, tokens_refused
from app.widgets import slices, theme
from app.widgets.sideways_area import SidewaysArea
from backend.text import text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"E = mc^2", "E = mc²"), (r"\frac{a+b}{2}", "(a+b)/2"), (r"\sqrt{x}", "√x"),
        (r"\sum_{i=0}^{n} x_i^2 \geq 0", "∑ᵢ₌₀ⁿ xᵢ² ≥ 0"), (r"\alpha \le \infty", "α ≤ ∞"),
        (r"\mathbb{R}^n", "ℝⁿ"), (r"\text{if } x", "if x"),
        (r"\frac{\frac{1}{2}}{3}", "(1/2)/3"),
        (r"\boxed{42}", "42"), (r"\boxed{x = \frac12}", "x = 1/2"),
        (r"\hat{y} = \dot z", "ŷ = ż"),
        (r"\sqrt[3]{8}", "∛8"), (r"2\pi\mathrm{r}", "2πr"), (r"A\times\text{height}", "A×height"),
        (r"\frac\pi2", "π/2"), (r"\frac{dy}{dx}", "dy/dx"), (r"2\sin\theta", "2 sin θ"),
        (r"x^\prime + x^2_i + f''(x)", "x′ + xᵢ² + f″(x)"), (r"90^\circ", "90°"),
        (r"\{x \in \mathbb{N} \mid x \not= 1\}", "{x ∈ ℕ | x ≠ 1}"),
        (r"\left( \frac{a}{b} \right)^2", "(a/b)²"),
        (r"\left. \frac{x^3}{3} \right|_0^1", "(x³/3)|₀¹"),
        (r"\begin{aligned} a &= b \\[2pt] &= c \end{aligned}", "a = b\n= c"),
        (r"5\% \text{ of } \$3", "5% of $3"), (r"1{,}000", "1,000"),
        (r"x = 1 \quad y", "x = 1 \u2003y"),
        (r"\lVert v \rVert", "‖v‖"),
        # The text of a fraction or a root must not read as another one.
        (r"\frac{1}{2}x", "(1/2)x"), (r"2\frac13", "2(1/3)"), (r"\frac{1}{ab}", "1/(ab)"),
        (r"a/\frac{b}{c}", "a/(b/c)"), (r"\sqrt{2}x", "√(2)x"), (r"\sqrt{x}^2", "(√x)²"),
        (r"\frac{a}{b}!", "(a/b)!"), (r"\log\frac{a}{b}", "log (a/b)"),
    ],
)  # fmt: skip
def test_formulas_are_readable(formula: str, text: str) -> None:
    assert readable(formula) == text


@pytest.mark.parametrize(
    "formula",
    [
        r"\mathbf{v}\cdot\mathbf{w}", r"x^{q+Q}", r"e^{i\pi}", r"\sqrt[n]{x}", r"\binom{n}{k}",
        r"\ce{2H2 + O2}", r"\SI{5}{\meter}", r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}",
        r"\begin{cases} x & x > 0 \\ 0 & \text{else} \end{cases}", r"\overline{AB}", r"\hat{xy}",
        r"\begin{align} a &= 1 & b &= 2 \end{align}", r"\begin{aligned} a & b \end{aligned}",
        r"x^10", r"\frac123", r"{a+b}^2", r"a{}^2", "x^{a&b}", r"-\boxed{a+b}", r"x^*",
        r"v_{\text{max value}}", r"\vec{a}", r"\hat\beta",
        r"x^{2", r"\frac{a}", "x}", r"\left(x", r"\left\{ x \right.", "50% of x", "x^2^3", r"a\ ",
        r"\text{a $b$}", r"\mathbb{1}", r"\leqs x", "x = \\", r"\begin{split} a \end{align}", "$",
    ],
)  # fmt: skip
def test_a_formula_with_an_unknown_mark_stays(formula: str) -> None:
    assert readable(formula) == formula


LEAVES = (
    *(
        ("x", "x"),
        ("k", "k"),
        ("7", ""),
        (r"\alpha", "α"),
        (r"\mathrm{kg}", "kg"),
        (r"\hat{y}", "y"),
    ),
    *(
        (r"\text{if so}", "ifso"),
        (r"\mathbb R", "R"),
        (r"\infty", ""),
        (r"\sin", "sin"),
        (r"\%", ""),
    ),
)
SIGNS = (
    " + ",
    "-",
    " = ",
    r"\cdot ",
    r" \le ",
    r"\to ",
    r" \in ",
    r"\,",
    r"\quad ",
    ", ",
    r"\not=",
)


def random_formula(rng: random.Random, depth: int) -> tuple[list[str], str]:
    """Return a formula of known marks, cut where others may be inserted, and its letters."""
    made, letters = [], ""
    for _ in range(rng.randrange(1, 4)):
        (inner, own), (other, its) = (
            random_formula(rng, depth - 1) if depth else (["b"], "b") for _ in range(2)
        )
        leaf, its_leaf = rng.choice(LEAVES)
        piece, more = rng.choice(
            [
                ([leaf, ""], its_leaf),
                (["{", leaf, r"}_i^{2n}"], its_leaf + "in"),
                ([r"\frac{", *inner, "}{", *other, "}"], own + its),
                ([r"\sqrt{", *inner, "}"], own),
                ([r"\left(", *inner, r" \right)^2"], own),
                ([r"\{", *inner, r"\}"], own),
                ([r"\sum_{i=0}^n{", *inner, "}"], "in" + own),
            ]
        )
        made += [*piece, rng.choice(SIGNS)]
        letters += more
    return [*made, "z"], letters + "z"


def test_random_formulas_are_written_wholly_or_not_at_all() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        pieces, letters = random_formula(rng, 2)
        shown = readable("".join(pieces))
        assert "\\" not in shown, pieces
        plain = unicodedata.normalize("NFKD", shown)
        assert sorted(filter(str.isalpha, plain)) == sorted(letters), (pieces, shown)
        place = rng.randrange(len(pieces) + 1)
        unknown = rng.choice(
            [r"\inn ", r"\fracc12", r"\unknown", r"\mathbf{v}", r"\ce{H2O}", "#", "%"]
        )
        source = "".join([*pieces[:place], unknown, *pieces[place:]])
        assert readable(source) == source


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 or $6.", "`$x^2$`", "``a $y$ ` b``", "no math", "US$ 5 and $ 6", r"\\$",
        "$5 and $6", "$HOME:$PATH", "$a/$b", "from $5 to the 10 of B$", r"\\(x\\)",
        r"a \\[2pt] b\]",
        r"unfinished $\frac{1}{2", r"unfinished \(x^2", "unfinished $$ x^2",
        "prices $5 and $6, 10$ and 20$", "$7 each, so 5*7=$ 35", "costs $50-$20=$ 30",
        "for $1,959 (US$ in 2015)", "paid $4,000 a month ($ then)", "US$5–$10", "$HOME and $PATH",
        "价格为$5，另一个是$10。", "从$5涨到10$，", "苹果$5一个，橘子3$一个", "変数$aと$bです",
        "$name是名字，$age是年龄", "설정$HOME과$PATH.", "מ-$5 עד 10$.", "以$开头，以$结尾。",
        "от $5 за штуку до 10$ за две", "Цена$5, а там 6$",
    ],
)  # fmt: skip
def test_what_is_no_formula_stays(text: str) -> None:
    assert replace_math(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("设函数$f(x)=x^2$，则$f'(1)=2$。", "设函数f(x)=x²，则f′(1)=2。"),
        ("当$n \\geq 1$时，$2^n$大于$n$。", "当n ≥ 1时，2ⁿ大于n。"),
        ("约$3.5\\times 10^8$米，共$10$元", "约3.5×10⁸米，共10元"),
        ("その面積は$S=\\pi r^2$である", "その面積はS=πr²である"),
        ("함수$f(x)$는 **$x=1$**", "함수f(x)는 x=1"),
        ("ฟังก์ชัน$f(x)$คือ", "ฟังก์ชันf(x)คือ"),
        ("ב$x^2$ וגם $2πr$", "בx² וגם 2πr"),
    ],
)
def test_a_formula_may_touch_words_of_a_writing_without_capitals(text: str, shown: str) -> None:
    assert replace_math(text).replace("\\", "").replace("*", "") == shown


def test_letters_without_italics_stay_upright() -> None:
    assert replace_math(r"$\text{面积}$ $x$") == "面积 *x*"


def test_lists_of_numbers_are_formulas() -> None:
    """In 50 public texts with such a list it was a formula about nine times in ten."""
    shown = replace_math("for $6, 10$ or $2(x + y)$,\nnot $5").replace("\\", "").replace("*", "")
    assert shown == "for 6, 10 or 2(x + y),\nnot $5"


@pytest.mark.parametrize(
    "source",
    [
        r"$\unknown{a_1}_b * c* d$", r"\[ \mathbf{a} \\ \# \{b\} \]",
        "$$\n\\mathbf a\n- b\n# c\n$$",
        r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}", r"\(\href{https://a.example}{<b>}\)",
    ],
)  # fmt: skip
def test_the_source_of_a_formula_is_shown_as_it_is(source: str, qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown(f"So {source} end")
    assert block.toPlainText() == f"So {source} end"


def test_formulas_in_quotations_and_beside_words(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown("> so\n> $$\n> x\n> < y\n> $$\n")
    assert block.toPlainText() == "so\nx < y"
    block.show_markdown(r"the $n$th of $\$5 + x$, \begin{align} a &= b \\ &= c \end{align}")
    assert block.toPlainText() == "the nth of $5 + x, a = b\n= c"


def test_formulas_in_markdown(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown(r"So $a_1 * b_1 * c$ and \(x^2\), \[ \frac{1}{2} \] end")
    assert block.toPlainText() == "So a₁ * b₁ * c and x², 1/2 end"


def test_thousands_of_short_lines_are_many_blocks() -> None:
    splitter = BlockSplitter()
    for number in range(2000):
        splitter.append(f"line {number}\n")
    assert max(block.text.count("\n") for block in splitter.blocks) <= PROSE_LINES + 1
    assert "".join(block.text for block in splitter.blocks).count("line") == 2000


def test_an_endless_line_is_cut_at_words() -> None:
    splitter = BlockSplitter()
    for number in range(5000):
        splitter.append(f" word{number}")
    assert max(len(block.text) for block in splitter.blocks) < 10_000
    assert "".join(block.text for block in splitter.blocks).count("word") == 5000


def press(card: CodeCard, name: str) -> None:
    (button,) = (b for b in card.findChildren(QPushButton) if b.accessibleName() == name)
    button.click()


def test_long_lines_of_code_scroll_sideways_or_wrap(qtbot: Any) -> None:
    card = CodeCard("")
    qtbot.addWidget(card)
    card.resize(400, 100)
    card.show()
    card.show_text("short\n" + "a long line of code; " * 30)
    (body,) = card.findChildren(TextBlock)
    frame = card.findChild(SidewaysArea)
    assert isinstance(frame, SidewaysArea)
    qtbot.waitUntil(lambda: frame.horizontalScrollBar().maximum() > 0)
    height = body.height()
    press(card, "Wrap the lines of this code")
    qtbot.waitUntil(lambda: body.height() > 3 * height)
    qtbot.waitUntil(lambda: frame.horizontalScrollBar().maximum() == 0)
    press(card, "Wrap the lines of this code")
    qtbot.waitUntil(lambda: body.height() == height)


def test_a_difference_has_colours(qtbot: Any) -> None:
    highlight.is_ready("diff")
    qtbot.waitUntil(lambda: highlight.is_ready("diff"))
    kinds = [piece.kind for piece in highlight.pieces("diff", "-old\n+new\n same\n")]
    assert [kind for kind in kinds if kind] == ["danger", "code_string"]


def test_code_has_colours_and_long_code_is_whole(qtbot: Any, qapp: QApplication) -> None:
    theme.apply(qapp, theme.Choice.DARK)
    card = CodeCard("python")
    qtbot.addWidget(card)
    text = "\n".join(f'def f{number}():  # say\n    return "{number}"' for number in range(90))
    for n in range(0, len(text), 37):
        card.show_text(text[: n + 37])
    qtbot.waitUntil(lambda: highlight.is_ready("python"))
    list(card.redress())
    bodies = card.findChildren(TextBlock)
    assert len(bodies) == -(-180 // PART_LINES)
    assert "\n".join(body.toPlainText() for body in bodies) == text
    first = bodies[0].document().begin().layout().formats()
    kinds = {span.format.foreground().color().name() for span in first}
    assert {theme.DARK.code_keyword, theme.DARK.code_comment} <= kinds
    press(card, "Copy this code")
    assert QApplication.clipboard().text() == text


def test_long_code_comes_in_slices_and_is_copied_whole(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    card = CodeCard("")
    qtbot.addWidget(card)
    text = "\n".join(f"line {number}" for number in range(4 * PART_LINES))

    def shown() -> str:
        return "\n".join(body.toPlainText() for body in card.findChildren(TextBlock))

    card.show_text(text)
    assert len(shown()) < len(text) / 2
    press(card, "Copy this code")
    assert QApplication.clipboard().text() == text
    qtbot.waitUntil(slices.is_done)
    assert shown() == text


def test_an_unknown_language_is_plain(qtbot: Any) -> None:
    highlight.is_ready("klingon")
    qtbot.waitUntil(lambda: highlight.is_ready("klingon"))
    assert highlight.pieces("klingon", "x") == []


def test_a_long_chat_keeps_its_beginning_and_its_end() -> None:
    turns = [{"role": "system", "content": "S"}]
    for number in range(20):
        turns.append({"role": "user", "content": f"q{number} " + "word " * 50})
        turns.append({"role": "assistant", "content": f"a{number} " + "word " * 50})
    turns.append({"role": "user", "content": "last"})
    short, _ = fit(turns, 3000)
    assert sum(len(turn["content"]) for turn in short) < 3300
    assert short[0] == turns[0] and short[1]["content"].startswith("q0 ")
    assert short[-1] == turns[-1]
    roles = [turn["role"] for turn in short[1:]]
    assert all(a != b for a, b in itertools.pairwise(roles))
    assert fit(turns, 10**6) == (turns, 0)
    alone = [{"role": "user", "content": "word " * 1000 + "end"}]
    assert fit(alone, 100)[0][0]["content"].endswith("end")


def test_the_tokens_of_a_refusal() -> None:
    assert tokens_refused(text("engine.prompt_too_long", n=5000, n_context=4096)) == 5000
    assert tokens_refused(text("chats.disk_full")) == 0
    assert tokens_refused("The prompt has 5000 tokens, but the context holds only 4096.") == 0


def test_a_link_shows_its_target(qtbot: Any) -> None:
    """A model may write one address and link to another."""
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown("[https://bank.example](https://thief.example/a)\n")
    block.resize(400, 100)
    block.show()
    place = QPointF(20, block.height() / 2)
    none = Qt.MouseButton.NoButton
    move = QMouseEvent(
        QEvent.Type.MouseMove, place, place, none, none, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(block.viewport(), move)
    assert block.toolTip() == "https://thief.example/a"
    block.highlighted.emit(QUrl())
    assert block.toolTip() == ""
