"""Pictures for notebooks: a trie as text, a proof climbed hash by hash, the lives of tokens."""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from chainlake.merkle.blake import blake
from chainlake.merkle.mpf_proof import BranchStep, LeafStep, Proof, Step, climb
from chainlake.merkle.radix_rows import nibbles
from chainlake.plots import PALETTE

SHOWN = 24


def draw_trie(items: Mapping[bytes, bytes]) -> str:
    """A trie by the digits of its keys' hashes: what keys share stands once, each key at the end of its way."""
    paths = {blake(key).hex(): key for key in items}
    return "\n".join(_branch(sorted(paths), paths, 0, ""))


def _branch(names: list[str], paths: Mapping[str, bytes], depth: int, indent: str) -> Iterator[str]:
    if len(names) == 1:
        yield f"{indent}{names[0][depth : depth + 8]}… {_text(paths[names[0]])}"
        return
    end = depth
    while names and len({name[end] for name in names}) == 1:
        end += 1
    yield f"{indent}{names[0][depth:end] or '·'}" if names else "(empty)"
    for digit in sorted({name[end] for name in names}):
        own = [name for name in names if name[end] == digit]
        yield from _branch(own, paths, end, indent + "  ")


def steps_of(key: bytes, value: bytes | None, proof: Proof) -> Iterator[str]:
    """What a verifier does, one line per hash: from the key's place up to the root, which is the last."""
    path = nibbles(blake(key))
    first, *above = climb(key, value, proof)
    yield f"key {_text(key)}: its hash begins {blake(key).hex()[:16]}…"
    if value is not None:
        yield f"value {_text(value)}: its hash begins {blake(value).hex()[:16]}…"
        yield f"the leaf, the {64 - sum(1 + step.skip for step in proof.steps)} digits left and the value: {first.hex()[:16]}…"
    else:
        there = "nothing" if len(above) == len(proof.steps) else f"{_beside(proof.steps[-1])}, alone"
        yield f"it is not there; in its place there is {there}: {first.hex()[:16]}…"
    ends = list(accumulate(1 + step.skip for step in proof.steps))
    for number, found in zip(reversed(range(len(above))), above, strict=True):
        step, at = proof.steps[number], ends[number] - 1
        yield f"up from digit {path[at]:x}, after {step.skip} in common, beside {_beside(step)}: {found.hex()[:16]}…"


def _beside(step: Step) -> str:
    """What a step shows."""
    if isinstance(step, BranchStep):
        return f"other children, by eights, fours, twos and one ({step.neighbors[:4].hex()}…)"
    if isinstance(step, LeafStep):
        return f"one other key, whose hash begins {step.key.hex()[:8]}…"
    return f"one other branch, at {step.nibble:x}"


def lives(events: Any, head: int) -> None:
    """One line per token from its boot to its burn, with a mark at each update."""
    import matplotlib.pyplot as plt

    own = events[events["kind"].isin(["boot", "update", "reject", "burn"])]
    tokens = list(own.sort_values("height")["token"].drop_duplicates())[:SHOWN]
    _, axes = plt.subplots(figsize=(8, 0.8 + 0.28 * len(tokens)), layout="constrained")
    for place, token in enumerate(tokens):
        mine = own[own["token"] == token]
        burnt = mine[mine["kind"] == "burn"]["height"]
        end = int(burnt.iloc[0]) if len(burnt) else head
        axes.plot([mine["height"].min(), end], [place, place], color=PALETTE[0], linewidth=3, alpha=0.5)
        for kind, marker, color in (("update", "|", PALETTE[0]), ("reject", "x", PALETTE[1]), ("burn", "s", PALETTE[3])):
            at = mine[mine["kind"] == kind]["height"]
            axes.scatter(at, [place] * len(at), marker=marker, color=color, label=kind if place == 0 else None)
    axes.set_yticks(range(len(tokens)), [f"{token[:8]}…" for token in tokens])
    axes.set(title="Lives of tokens", xlabel="block", ylabel="token")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _text(data: bytes) -> str:
    """Readable bytes as text, others as hex; not too long."""
    if data and all(32 <= byte < 127 for byte in data):
        return repr(data.decode()[:40])
    return f"0x{data.hex()[:16]}{'…' if len(data) > 8 else ''}"
