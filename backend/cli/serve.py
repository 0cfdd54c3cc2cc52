"""`outrider serve`: a local server that speaks OpenAI's, Anthropic's and Ollama's protocols."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    add_automatic_options,
    automatic_config,
    say,
    whole_number,
)
from backend.engine.embedding_model import EmbeddingModel
from backend.engine.engine import Engine
from backend.library.facts import FactsCache
from backend.library.scan import by_name, scan
from backend.protocol.settings import EngineConfig
from backend.server.application import make_server
from backend.server.engine_host import EngineThread
from backend.server.guard import ADDRESS, KEY_CHARS_MIN, Access, is_origin
from backend.server.running import ServerError, listen
from backend.server.turns import N_PARALLEL, Turns
from backend.system.paths import embedded_model, states_folder

_KEY_VARIABLE = "OUTRIDER_API_KEY"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Serve a model to programs on this machine through the protocols of OpenAI "
        "(/v1/chat/completions, /v1/responses, /v1/completions, /v1/models), Anthropic "
        "(/v1/messages) and Ollama (/api/chat, /api/generate). It listens on 127.0.0.1 only, "
        f"unless --host is given, and asks for a key: that of {_KEY_VARIABLE} in the environment, "
        "or a new one that it shows."
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="a GGUF file; without it the embedded model")
    add("--port", type=whole_number(0, 65535), default=8088, metavar="N", help="0: any free one")
    add(
        "--models",
        metavar="FOLDER",
        action="append",
        default=[],
        help="load a model of this folder when a request names it; may be given several times",
    )
    add(
        "--unload-after",
        type=_minutes,
        metavar="MIN",
        help="free the model after this many minutes without a request; the next one loads it",
    )
    add(
        "--parallel",
        type=whole_number(1, 64),
        default=N_PARALLEL,
        metavar="N",
        help=f"answers that are computed at once; they share the context (default: {N_PARALLEL})",
    )
    add(
        "--embedding-model",
        metavar="FILE",
        default="",
        help="a small model for /v1/embeddings, /api/embed or /v1/rerank, beside the other one; "
        "loaded when it is asked, and freed when it was not for five minutes",
    )
    add(
        "--host",
        type=_address,
        default=ADDRESS,
        metavar="ADDRESS",
        help="let other machines connect to this address of this machine, 0.0.0.0 for all; nothing "
        "is encrypted, so others in the network can read the key and all that is said",
    )
    add(
        "--allow-host",
        type=_host_name,
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which other machines call this one; may be given several times",
    )
    add(
        "--allow-origin",
        type=_origin,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin read answers, such as https://chat.example; they need the "
        "key, too; localhost for pages of this machine, * for all; may be given several times",
    )
    add_automatic_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    path = Path(args.model) if args.model else embedded_model()
    small = args.embedding_model
    config = automatic_config(args).changed(n_sequence=args.parallel, embedding_model=small)
    embedder = EmbeddingModel(Path(small), config.n_thread) if small else None
    paths = _models(args.models)
    key = os.environ.get(_KEY_VARIABLE, "")
    is_new = not key
    key = key or secrets.token_urlsafe(24)
    access = Access(args.host, frozenset(args.allow_host), frozenset(args.allow_origin))
    if access.is_open and len(key) < KEY_CHARS_MIN:
        raise UserError(
            f"The key in {_KEY_VARIABLE} has {len(key)} characters. One that other machines may "
            f"try must have at least {KEY_CHARS_MIN}; without it a new key is made."
        )
    try:
        listener = listen(args.port, args.host)
    except ServerError as error:
        raise UserError(str(error)) from None
    for warning in _warnings(access):
        say(warning, error=True)
    engine = _open(path, config)
    servers: list[Any] = []
    fault = ""

    def failed(sentence: str) -> None:
        """End: nothing can be computed any more."""
        nonlocal fault
        fault = sentence
        for server in servers:
            server.should_exit = True

    host = EngineThread(
        engine,
        lambda path: _open(path, config),
        paths,
        60 * args.unload_after if args.unload_after else None,
        embedder,
        failed,
    )
    try:
        port = listener.getsockname()[1]
        say(f"Serving {host.model_name} at {_url(args.host, port)}/v1")
        if is_new:
            say(f"Key: {key}")
        if paths:
            say(f"On request: {', '.join(paths)}")
        if embedder is not None:
            does = "Ranking" if embedder.ranks else "Embeddings"
            say(f"{does}: {embedder.name}, texts of up to {embedder.n_most:,} tokens")
        say(_context(engine))
        if engine.cache.overridden:
            say(engine.cache.overridden, error=True)
        say("Ctrl-C ends it.", error=True)
        turns = Turns(host, n_parallel=args.parallel)
        servers.append(make_server(turns, key, access))
        if not fault:
            servers[0].run(sockets=[listener])
    finally:
        host.stop()
        host.close()
        if embedder is not None:
            embedder.close()
        listener.close()
    if fault:
        raise UserError(fault)
    return 0


def _minutes(given: str) -> float:
    value = float(given)
    if not 0 < value < 1e6:
        raise ValueError
    return value


def _open(path: Path, config: EngineConfig) -> Engine:
    engine = Engine.open(path, config)
    engine.keep_in(states_folder())
    say(f"{engine.model.name}: {engine.cache.runs}", error=True)
    return engine


def _url(address: str, port: int) -> str:
    """Return the URL at which the server answers; for all addresses, that of this machine."""
    own = {"0.0.0.0": ADDRESS, "::": "::1"}.get(address, address)
    return f"http://{f'[{own}]' if ':' in own else own}:{port}"


def _warnings(access: Access) -> Iterator[str]:
    if access.is_open:
        yield (
            "Other machines can connect with the key. Nothing is encrypted: whoever can listen in "
            "the network reads the key, the requests and the answers. Use it in a network that you "
            "trust, or through ssh or a VPN."
        )
    if "*" in access.origins:
        yield "Pages of all origins may use the server if they have the key."


def _address(text: str) -> str:
    """Parse an argument: an address of this machine."""
    try:
        return str(ipaddress.ip_address("127.0.0.1" if text == "localhost" else text))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be an address of this machine, such as 0.0.0.0 for all, not '{text}'"
        ) from None


def _host_name(text: str) -> str:
    """Parse an argument: a host without a port."""
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]", text):
        raise argparse.ArgumentTypeError(f"must be a name such as my-pc.local, not '{text}'")
    return text.lower()


def _origin(text: str) -> str:
    """Parse an argument: an origin as browsers send it."""
    if not is_origin(text):
        raise argparse.ArgumentTypeError(
            f"must be an origin such as https://chat.example, without a path, not '{text}'"
        )
    return text.lower()


def _context(engine: Engine) -> str:
    """Return a sentence on what a conversation holds."""
    n_all, n_sequence = int(engine.loaded.context.n_context), engine.n_sequence
    said = f"A conversation has up to {engine.n_context:,} tokens"
    if engine.n_context == engine.file.context_length < engine.loaded.config.context_length:
        said += ", as many as the model was trained with"
    if n_sequence > 1:
        said += f"; up to {n_sequence} at once share {n_all:,}"
    return said + "."


def _models(folders: list[str]) -> dict[str, Path]:
    """Return the usable models below some folders, by the names of their files."""
    for folder in folders:
        if not Path(folder).is_dir():
            raise UserError(f"There is no folder {folder}.")
    return by_name(scan([Path(folder) for folder in folders], [], FactsCache(None, 0)).entries)
