"""Where a node is, and what it wants to see from those who ask.

The URL of a chain is kept in `control.chains`, where everybody can read it. So secrets stay in environment variables: the option
`header_env=NAME` takes the Authorization header from one, and `${NAME}` in the user part, path or query of the URL stands for the
value of one. Messages and `raw.blocks.source` show the scheme, host and port, nothing else.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from chainlake.errors import BadInput

GIVEN = "env:"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PATH_CHARACTERS = "/?&=%:@+,;~!*'()-._"


@dataclass(frozen=True)
class Endpoint:
    """A node as the HTTP client needs it. `secrets` must not be shown."""

    shown: str
    secure: bool
    host: str
    port: int
    target: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def without_secrets(self, text: str) -> str:
        """One printable line of what a node said, in which it may have repeated what we sent."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return "".join(letter if letter.isprintable() else " " for letter in text)[:200]


def check_url(url: str) -> None:
    """Refuses what cannot be the URL of a node, and one that would put a password into `control.chains`."""
    parts = _split(url)
    _, _, password = _userinfo(parts).partition(":")
    if password and not _VARIABLE.fullmatch(password):
        raise BadInput(
            f"{shown(url)}: the URL has a password, which everybody could read in control.chains: write ${{NAME}} in its place"
            " and set the environment variable NAME"
        )


def shown(url: str) -> str:
    """Scheme, host and port: what messages may show of a URL."""
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def environment(url: str, options: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a chain needs, as options for readers in other processes: `env:NAME` = value."""
    names = set(_VARIABLE.findall(url)) | {name for name in (options.get("header_env"),) if name}
    return {GIVEN + name: _variable(name, options) for name in sorted(names)}


def endpoint(url: str, options: Mapping[str, str]) -> Endpoint:
    """The node that a URL and the options of its chain mean, secrets filled in."""
    check_url(url)
    parts = _split(url)
    headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip", "User-Agent": "chainlake"}
    if userinfo := _userinfo(parts):
        user, _, password = userinfo.partition(":")
        pair = f"{_filled(unquote(user), options)}:{_filled(unquote(password), options)}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    if name := options.get("header_env"):
        headers["Authorization"] = _variable(name, options)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(
        shown=shown(url),
        secure=parts.scheme == "https",
        host=parts.hostname or "",
        port=parts.port or (443 if parts.scheme == "https" else 80),
        target=quote(_filled(target, options), safe=_PATH_CHARACTERS),
        headers=headers,
        secrets=_spellings([*environment(url, options).values(), headers.get("Authorization", "")]),
    )


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise BadInput("the URL of the node cannot be read: write it like http://host:8545") from None
    if parts.scheme not in ("http", "https"):
        raise BadInput(f"a node cannot be asked by {parts.scheme or url[:20]!r}: give its http:// or https:// URL")
    if not host or not re.fullmatch(r"[\w.:%-]+", host) or parts.fragment:
        raise BadInput(f"{parts.scheme}://… is not the URL of a node: write it like http://host:8545, its host and port in full")
    return parts


def _userinfo(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[0]


def _spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """How a node may repeat secrets: whole, without the scheme before a token, or as they stand in a URL. The longest first."""
    found = {one for text in secrets for one in (text, *text.split()[-1:], quote(text, safe=_PATH_CHARACTERS)) if one}
    return tuple(sorted(found, key=len, reverse=True))


def _filled(text: str, options: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: _variable(match.group(1), options), text)


def _variable(name: str, options: Mapping[str, str]) -> str:
    """The value of a variable, as given by the process that started the run, else from the environment here."""
    value = options.get(GIVEN + name) or os.environ.get(name, "")
    if not value:
        raise BadInput(f"the environment variable {name} is not set: this chain needs it to ask its node")
    if not value.isascii() or not value.isprintable():
        raise BadInput(f"the environment variable {name} holds more than one line of plain text: it cannot be sent to a node")
    return value
