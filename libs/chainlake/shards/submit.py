"""Transactions handed to a node of a shard: what `build` makes goes in, what came of it comes out."""

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from chainlake.errors import BadInput, Unavailable
from chainlake.shards.checks import check_tx
from chainlake.shards.codes import Code, Refused
from chainlake.shards.compare import ChainTxResult, parse_tx_result
from chainlake.sources.endpoint import endpoint, shown
from chainlake.sources.node_splits import limits
from chainlake.sources.rpc_client import RpcClient, RpcFailure


class Submitted(NamedTuple):
    """The block that a transaction is in, and its result there. A batch of miniblocks is OK as a transaction, whatever became of
    its miniblocks: the events of the result tell, one each."""

    height: int
    hash: bytes
    result: ChainTxResult


def submit(url: str, transaction: bytes, options: Mapping[str, str] | None = None) -> Submitted:
    """Hand a transaction to a node, and wait until it is in a block. `Refused` if no shard would take it, or this one does not.

    It is sent once. `Unavailable` tells what the node said in place of a result; after a silence the transaction may be in a
    block all the same. `options` are those of a chain that is read from the node (`timeout`, `header_env` …).
    """
    check_tx(transaction)
    client = RpcClient(endpoint(url, options or {}), replace(limits(options or {}), retries=0))
    try:
        answer = client.call("broadcast_tx_commit", base64.b64encode(transaction).decode())
        if isinstance(answer, RpcFailure):
            raise Unavailable(f"{shown(url)} says: {answer.message} (error {answer.code})")
        return read_submitted(answer)
    except Refused:
        raise
    except (Unavailable, BadInput) as error:
        raise Unavailable(
            f"{error}: unless that says that it was refused, the transaction may be in a block all the same: see its streams"
        ) from None
    finally:
        client.close()


def read_submitted(answer: Any) -> Submitted:
    """The result of CometBFT's `broadcast_tx_commit`; `Refused` if CheckTx refused the transaction."""
    if not isinstance(answer, dict):
        raise BadInput(f"{answer!r:.60} is not the result of CometBFT's broadcast_tx_commit")
    checked = parse_tx_result(answer.get("check_tx"), "check_tx")
    if checked.code:
        raise Refused(Code(checked.code) if checked.code in list(Code) else Code.UNKNOWN, checked.log)
    height, digest = answer.get("height"), answer.get("hash")
    if not isinstance(height, str) or not re.fullmatch("[1-9][0-9]{0,17}", height):
        raise BadInput(f"height is {height!r:.60}: a decimal number in quotes is expected")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise BadInput(f"hash is {digest!r:.80}: 64 hex digits are expected")
    return Submitted(int(height), bytes.fromhex(digest), parse_tx_result(answer.get("tx_result"), "tx_result"))
