"""How a host sets the page up: ``SPECDEMO_*`` variables and flags, checked at the start.

One table, the fields of ``Config``: a flag wins over its variable, a variable over the default.
Every mistake becomes one sentence, and all mistakes are told at once. Secrets come from variables
alone (other users of a machine can read a command line) and are never printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .config_values import contradictions, parsed, unknown
from .errors import InputError

Environ = Mapping[str, str]

#: Variables that other modules read themselves; listed here so that a misspelt name is noticed.
OTHERS: dict[str, str] = {
    "SPECDEMO_CACHE": "folder for downloaded models",
    "SPECDEMO_GGUF": "a GGUF file in place of the downloaded model",
    "SPECDEMO_KERNELS": "torch: leave the kernels of our own out",
}


def setting(
    default: Any,
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    flag: str = "",
    many: bool = False,
    secret: bool = False,
) -> Any:
    """A field of ``Config``. ``text``: its help. Numbers have a range, texts may have ``choices``.
    ``flag``: its flag where that is not the field's own name. ``many``: the flag may be repeated.
    ``secret``: no flag, and never printed."""
    metadata = {
        "text": text,
        "low": low,
        "high": high,
        "choices": choices,
        "flag": flag,
        "many": many,
        "secret": secret,
    }
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True)
class Config:
    """All that a host may set. Times are in seconds."""

    model: str = setting("", "the target: catalogue key, Hub id or folder (default: embedded)")
    draft: str = setting("", "draft model of the default pair (default: that of the catalogue)")
    models: tuple[str, ...] = setting((), "models that visitors may choose besides the default")
    device: str = setting("auto", "where the model runs", choices=("auto", "cpu", "cuda"))
    dtype: str = setting("auto", "number format", choices=("auto", "bf16", "fp32", "q4"))
    threads: int = setting(0, "CPU threads (0: torch's choice)", low=0, high=1024)
    servers: tuple[str, ...] = setting(
        (), "serving engines that visitors may choose, NAME=URL", flag="server", many=True
    )
    max_prompt: int = setting(20_000, "longest prompt, in characters", low=1, high=200_000)
    max_output: int = setting(1024, "longest answer, in tokens", low=2, high=100_000)
    deadline: float = setting(180.0, "longest run, in seconds", low=1, high=86_400)
    queue: int = setting(256, "runs that may wait for the device", low=1, high=10_000)
    rate: int = setting(30, "runs a minute for one visitor", low=1, high=10_000)
    address_rate: int = setting(
        600, "runs a minute for one network address (a class shares one)", low=1, high=100_000
    )
    lang: str = setting("auto", "language of the page", choices=("auto", "en", "zh"))
    auth: tuple[str, ...] = setting((), "USER:PASSWORD pairs that may enter", secret=True)
    recordings: bool = setting(True, "whether visitors may open recordings of their own")
    host: str = setting("127.0.0.1", "address to listen on")
    port: int = setting(0, "port to listen on (0: the first free one from 7860)", low=0, high=65_535)
    root_path: str = setting("", "path of a proxy below which the page lives")
    frame: tuple[str, ...] = setting((), "origins that may show the page in a frame")
    proxy: bool = setting(False, "whether a proxy in front tells visitors' addresses")
    log: str = setting("json", "format of the log", choices=("json", "text", "off"))
    log_prompts: bool = setting(False, "whether prompts are written to the log")
    metrics: bool = setting(True, "whether /metrics is served")

    @property
    def users(self) -> dict[str, str]:
        """Passwords by user name; empty when everybody may enter."""
        return dict(pair.split(":", 1) for pair in self.auth)


class ConfigError(InputError):
    """The host's settings are wrong. ``mistakes``: one sentence each; ``str`` has one a line."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("config", mistakes="\n".join(mistakes))


FIELDS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Config)}


def variable(name: str) -> str:
    return f"SPECDEMO_{name.upper()}"


def flag(name: str) -> str:
    return "--" + (FIELDS[name].metadata["flag"] or name).replace("_", "-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting but the secret ones. What is not given stays None."""
    for name, f in FIELDS.items():
        if f.metadata["secret"]:
            continue
        names = {True: "on|off", False: name.upper()}
        parser.add_argument(
            flag(name),
            dest=name,
            default=None,
            action="append" if f.metadata["many"] else "store",
            metavar="NAME=URL" if name == "servers" else names[isinstance(f.default, bool)],
            help=f"{f.metadata['text']}; or {variable(name)}".replace("%", "%%"),
        )


def load(environ: Environ | None = None, flags: argparse.Namespace | None = None) -> Config:
    """The settings of this start. Raises ``ConfigError`` with a sentence for every mistake."""
    config, _ = load_with_sources(environ, flags)
    return config


def load_with_sources(
    environ: Environ | None = None, flags: argparse.Namespace | None = None
) -> tuple[Config, dict[str, str]]:
    """The settings, and where each came from: ``default``, the variable's or the flag's name."""
    environ = os.environ if environ is None else environ
    mistakes = unknown(environ, [*map(variable, FIELDS), *OTHERS])
    values: dict[str, Any] = {}
    sources = dict.fromkeys(FIELDS, "default")
    for name, f in FIELDS.items():
        given = getattr(flags, name, None)
        raw = given if given is not None else environ.get(variable(name))
        if raw is None or (given is None and not str(raw).strip()):
            continue
        sources[name] = flag(name) if given is not None else variable(name)
        try:
            values[name] = parsed(f, raw)
        except ValueError as error:
            mistakes.append(f"{sources[name]} {error}.")
    if environ.get("SPACE_ID"):  # a Hugging Face Space: its proxy is in front, its page around us
        _space(values, sources)
    config = Config(**values)
    mistakes += contradictions(config, sources, environ)
    if mistakes:
        raise ConfigError(mistakes)
    return config, sources


def _space(values: dict[str, Any], sources: dict[str, str]) -> None:
    for name, value in (
        ("host", "0.0.0.0"),
        ("proxy", True),
        ("frame", ("https://huggingface.co",)),
    ):
        if name not in values:
            values[name], sources[name] = value, "Space"


def describe(config: Config, sources: Mapping[str, str], environ: Environ | None = None) -> str:
    """One setting a line: name, value, where it came from. Of secrets only that they are there."""
    from .remote.servers import parse_server

    environ = os.environ if environ is None else environ
    lines = []
    for name in FIELDS:
        value = getattr(config, name)
        if name == "auth":
            shown = f"{len(config.users)} user(s), passwords not shown" if config.auth else "everybody"
        elif name == "servers":
            servers = [parse_server(entry, environ) for entry in config.servers]
            shown = ", ".join(f"{s.name} ({s.kind}{', key set' * bool(s.api_key)})" for s in servers)
        elif isinstance(value, bool):
            shown = "on" if value else "off"
        else:
            shown = " ".join(value) if isinstance(value, tuple) else str(value)
        lines.append(f"{name:14} {shown or '-':40} {sources[name]}".rstrip())
    lines += [f"{name:14} {environ[name]}" for name in OTHERS if environ.get(name)]
    return "\n".join(lines)


def config_command(flags: argparse.Namespace) -> int:
    """``python -m specdemo config``: the settings as they would be used. Raises ``ConfigError``."""
    print(describe(*load_with_sources(None, flags)))
    return 0
