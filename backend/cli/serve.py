"""`outrider serve`: a local server that speaks OpenAI's protocol, without the window."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any

from backend.cli.common import UserError, add_engine_options, engine_config, whole_number

_KEY_VARIABLE = "OUTRIDER_API_KEY"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "serve",
        help="serve a model to programs on this machine, as OpenAI's API",
        description="Serve a model to programs on this machine through OpenAI's protocol: "
        "/v1/models, /v1/chat/completions and /v1/completions. It listens on 127.0.0.1 only and "
        f"asks for a key: that of {_KEY_VARIABLE} in the environment, or a new one that it shows.",
    )
    add = parser.add_argument
    add("model", nargs="?", metavar="MODEL", help="a GGUF file; without it the embedded model")
    add("--port", type=whole_number(0, 65535), default=8088, metavar="N", help="0: any free one")
    add_engine_options(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from backend.engine.engine import Engine
    from backend.server.application import ADDRESS, make_server
    from backend.server.turns import EngineThread, Turns
    from backend.system.paths import embedded_model

    path = Path(args.model) if args.model else embedded_model()
    config = engine_config(args)
    key = os.environ.get(_KEY_VARIABLE, "")
    is_new = not key
    key = key or secrets.token_urlsafe(24)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, args.port))
    except OSError as error:
        raise UserError(f"Port {args.port} cannot be used: {error.strerror}.") from None
    engine = Engine.open(path, config)
    host = EngineThread(engine)
    try:
        port = listener.getsockname()[1]
        print(f"Serving {engine.model.name} at http://{ADDRESS}:{port}/v1", flush=True)
        if is_new:
            print(f"Key: {key}", flush=True)
        print("Ctrl-C ends it.", file=sys.stderr, flush=True)
        make_server(Turns(host), key, port).run(sockets=[listener])
    finally:
        engine.stop()
        host.close()
        engine.close()
        listener.close()
    return 0
