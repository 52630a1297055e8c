"""control.chains: the chains that the lake follows, where their blocks come from, and their options."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from chainlake.errors import BadInput, some_of
from chainlake.lake.clock import now
from chainlake.lake.control import ControlTables

LASTING = (
    "chain_id",
    *("cage_policy", "network", "genesis", "genesis_complete", "network_start", "byron_slots"),
    *("registry", "app_hash", "mask", "snapshot"),
)
"""Options that say what a chain is. They stay when they are not given again."""
OF_SOURCE = ("results",)
"""Options about the blocks of one source. They stay as long as the source does."""


@dataclass(frozen=True)
class Chain:
    """One chain."""

    name: str
    kind: str
    source: str
    options: Mapping[str, str]


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a chain."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise BadInput(f"chain name {name!r}: use up to 63 letters, digits, '.', '_' and '-', a letter or digit first")


class Chains:
    """The latest row of a chain holds."""

    def __init__(self, control: ControlTables) -> None:
        self._control = control
        self._known: dict[str, Chain] | None = None

    def all(self) -> dict[str, Chain]:
        if self._known is None:
            rows = sorted(self._control.read("chains"), key=lambda row: row["at"])
            self._known = {
                row["chain"]: Chain(row["chain"], row["kind"], row["source"], dict(row["options"] or ())) for row in rows
            }
        return self._known

    def look_again(self) -> None:
        """Others may have added chains since."""
        self._known = None

    def get(self, name: str) -> Chain:
        if name not in self.all():
            raise BadInput(f"unknown chain {name!r}: there are {some_of(self.all())}")
        return self.all()[name]

    def add(self, chain: Chain) -> None:
        """Remember a chain, or what changed of it. Its kind and its cage never change, and its network only when it is given.
        The registry and app hashes of a shard may be mended: its stages stop at what contradicts blocks or the past."""
        check_name(chain.name)
        known = self.all().get(chain.name)
        if known and known.kind != chain.kind:
            raise BadInput(f"chain {chain.name!r} is of kind {known.kind}, not {chain.kind}: choose another name")
        if known:
            chain = replace(chain, options={**lasting(known, chain.source), **chain.options})
            _check_cage(known, chain)
        if known == chain:
            return
        row = {"chain": chain.name, "kind": chain.kind, "source": chain.source, "options": dict(chain.options), "at": now()}
        self._control.append("chains", [row])
        self._known = None


def lasting(chain: Chain, source: str) -> dict[str, str]:
    """The options of a chain that stay when it is now read from `source` and they are not given again."""
    names = (*LASTING, *OF_SOURCE) if source == chain.source else LASTING
    return {name: chain.options[name] for name in names if name in chain.options}


def _check_cage(known: Chain, chain: Chain) -> None:
    """What a lake holds of a cage is of that cage alone: from another one events would be missed without a word."""
    for name, usual in (("cage_policy", ""), ("network", "testnet")) if "cage_policy" in known.options else ():
        was, now_ = (one.options.get(name, usual).lower().removeprefix("0x") for one in (known, chain))
        if was != now_:
            raise BadInput(f"chain {chain.name!r} has {name} {was}, not {now_}: choose another name for another cage")
