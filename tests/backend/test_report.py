"""`outrider report`: its parts, each of which may fail, and what the file must not hold.

The processes that it starts are scripts in place of the real ones.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import fork_server
import pytest
from factory import make_tiny
from waiting import WAIT_S

from backend.cli import main
from backend.evaluation.verify import Comparison
from backend.system import children

ROOT = Path(__file__).resolve().parents[2]
FAKE_WORKER = str(ROOT / "tests" / "fake_worker.py")
WORKER, MEASURE = "backend.worker.main", "backend.library.machine"
SIZES, VERIFY = "backend.engine.dry_run", "backend.cli"
SECRETS = ("shelved", "Zoë", "zoes-box", "hidden folder", "/tmp", "sealed")
COMPARED = {
    "method": "promoe", "rate": 0.25, "n_position": 200, "n_value": 1000, "n_different": 0,
    "first_position": None, "largest_difference": 0.0, "identical": True, "hits": 3, "late": 0,
    "misses": 1,
}  # fmt: skip


def printing(text: str, status: int = 0) -> list[str]:
    return [sys.executable, "-c", f"print({text!r}); raise SystemExit({status})"]


def compared(**values: Any) -> list[str]:
    return printing(json.dumps({"results": [{**COMPARED, **values}]}), int(bool(values)))


SPEEDS = (
    "import sys, json; json.dump({'format': 'outrider-machine', 'version': 1, 'name': 'here', "
    "'sentence': 'x', 'figures': {name: {'value': 2, 'source': 'measured'} for name in "
    "('link_gb_per_s', 'link_latency_us', 'n_link', 'memory_gb_per_s', 'tflop_per_s', "
    "'step_us')}}, open(sys.argv[1], 'w'))"
)
TOLD = {
    "warnings": [], "cell_bytes": 64.0, "state_bytes": 0, "window_bytes": 0.0, "n_window": 0,
    "compute_bytes": {"512": 1 << 20},
}  # fmt: skip
CHILDREN: dict[str, list[str]] = {
    WORKER: [sys.executable, FAKE_WORKER],
    MEASURE: [sys.executable, "-c", SPEEDS],
    SIZES: printing(json.dumps(TOLD)),
    VERIFY: compared(),
}


class Home:
    """A home of a user with a name, a model in it, and children that are scripts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = folder / "Zoë O'Neil"
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("USER", "Zoë O'Neil")
        monkeypatch.setattr("socket.gethostname", lambda: "zoes-box")
        self.out = folder / "report.txt"
        self.children = dict(CHILDREN)
        self.model = home / "hidden folder" / "shelved.gguf"  # a name that the fake engine knows
        self.model.parent.mkdir(parents=True)
        monkeypatch.setattr(children, "command", self._command)

    def _command(self, module: str, *words: str) -> list[str]:
        if self.children[module] is CHILDREN[WORKER]:
            return fork_server.command([FAKE_WORKER], ("fake_worker",))
        return [*self.children[module], *(() if module == WORKER else words)]

    def run(self, *words: str) -> int:
        return main(["report", str(self.model), "--out", str(self.out), *words])

    @property
    def text(self) -> str:
        text = self.out.read_text(encoding="utf-8")
        for secret in SECRETS:
            assert secret not in text, text
        return text

    def facts(self, section: str) -> dict[str, str]:
        lines = self.text.split(f"\n\n{section}\n")[1].split("\n\n")[0].splitlines()
        return dict(line.strip().split(": ", 1) for line in lines)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    found = Home(tmp_path, monkeypatch)
    make_tiny("qwen3moe", "Q8_0", found.model)
    return found


def test_the_scripts_answer_as_the_real_processes_do() -> None:
    names = {field.name for field in fields(Comparison)} | {"identical"}
    assert COMPARED.keys() <= names


def test_every_part_is_told_and_shown(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.run("--json") == 0, home.text
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["part"] for line in lines[:-1]] == list(range(lines[0]["parts"]))
    assert lines[-1] == {"report": str(home.out), "status": 0}
    assert home.facts("Summary")["complete"] == "yes"
    assert home.facts("Machine")["drive"] == "2.00 GB/s, 2 us"
    assert home.facts("Turns")["turn 2, prompt"].endswith(" tokens")
    assert home.facts("Stock llama.cpp")["cpu, rows"] == "200"


SENTENCE = "print('/mnt/Zoë\\'s drive/hidden folder/sealed.gguf fails', file=sys.stderr)"
FAILS = [sys.executable, "-c", f"import sys; {SENTENCE}; sys.exit(1)"]


@pytest.mark.parametrize(
    ("modules", "sections"),
    [((WORKER,), ("Machine", "Engine", "Turns", "Speed")),
     ((MEASURE, SIZES, VERIFY), ("Machine", "Engine", "Stock llama.cpp"))],
)  # fmt: skip
def test_a_part_that_fails_loses_no_other(
    modules: Sequence[str], sections: Sequence[str], home: Home
) -> None:
    home.children |= dict.fromkeys(modules, FAILS)
    assert home.run() == 1
    missing = {
        section
        for section in ("Machine", "Engine", "Turns", "Speed", "Stock llama.cpp")
        if any(name.endswith("missing") for name in home.facts(section))
    }
    assert missing == set(sections), home.text
    assert home.facts("Summary")["complete"] == "no"
    assert len(home.facts("Model")) > 8


@pytest.mark.parametrize(
    ("values", "logits", "words"),
    [
        ({"identical": False, "n_different": 7, "first_position": 12}, "different",
         "7 of 1000 values, from row 12"),
        ({"n_position": 40}, "identical in 40 rows", "There was time for 40 of 200 rows."),
    ],
)  # fmt: skip
def test_a_difference_or_fewer_rows_are_in_the_summary_and_the_status(
    values: dict[str, Any], logits: str, words: str, home: Home
) -> None:
    home.children |= {VERIFY: compared(**values), WORKER: FAILS}
    assert home.run() == 1
    assert home.facts("Summary")["logits"] == logits
    assert words in home.text


def test_what_takes_too_long_is_cut(home: Home) -> None:
    home.model = home.model.rename(home.model.with_name("slow"))  # it takes ten seconds to load
    for module in (MEASURE, VERIFY):
        home.children[module] = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert home.run("--seconds", "2") == 1
    for section in ("Machine", "Engine", "Stock llama.cpp"):
        assert "It did not end within" in " ".join(home.facts(section).values()), home.text


def test_a_dense_model_has_a_report_too(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.model.unlink()
    make_tiny("dense", "Q8_0", home.model)
    home.children[VERIFY] = FAILS
    monkeypatch.chdir(tmp_path)
    status = main(["report", str(home.model)])
    (home.out,) = tmp_path.glob("outrider-report-llama-20*.txt")  # by default
    assert status == 0, home.text
    assert "nothing is to be compared" in home.facts("Stock llama.cpp")["rows"]


@pytest.mark.skipif(os.name == "nt", reason="a signal stops it")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_keeps_what_was_measured(number: int, home: Home) -> None:
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    script = (
        "import sys; from backend.cli import main; from backend.system import children\n"
        f"scripts = {dict(home.children, **{VERIFY: waits})!r}\n"
        f"children.command = lambda module, *words: "
        f"[*scripts[module], *(() if module == {WORKER!r} else words)]\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["report", str(home.model), "--json", "--out", str(home.out)]
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as child:
        assert child.stdout is not None
        while (line := json.loads(child.stdout.readline()))["part"] != line["parts"] - 1:
            pass  # until stock llama.cpp would compute
        child.send_signal(number)
        assert json.loads(child.stdout.readline())["status"] == 130
        assert child.wait(WAIT_S) == 130
    assert home.facts("Summary")["missing"] == "It was stopped before its end."
    assert "turn 3 again, decoding" in home.facts("Turns")


def test_a_file_that_cannot_be_written_is_refused_before_anything(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for out, words in (
        (tmp_path, "exists already"),
        (tmp_path / "none" / "r.txt", "does not exist"),
        (home.model, "exists already"),
    ):
        assert main(["report", str(home.model), "--out", str(out)]) == 1
        assert words in capsys.readouterr().err
    monkeypatch.setattr("backend.cli.report.may_write", lambda _: False)
    assert home.run() == 1
    assert "Nothing can be written" in capsys.readouterr().err
