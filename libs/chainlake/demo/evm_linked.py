"""Segments of a chain as blocks: headers that link by Keccak-256, real blooms, and the JSON of their logs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chainlake.demo.evm import BLOCK_SECONDS, GAS_LIMIT, GENESIS_TIME, keccak
from chainlake.demo.evm_segments import ABSENT, Chain, Scale, Segment, starts
from chainlake.demo.evm_world import Bytes, Draws, World, bloom_positions, hex_rows
from chainlake.encoding import to_hex

ZERO_HASH = to_hex(bytes(32))


@dataclass(frozen=True)
class Linked:
    """A segment with the headers of its blocks, which name their parents."""

    segment: Segment
    world: World
    headers: list[str]
    hashes: list[str]

    def lines(self) -> list[bytes]:
        """One line of the evm format a block."""
        logs, ends = self._logs(), np.cumsum(self.segment.block_logs).tolist()
        begins = [0, *ends[:-1]]
        return [
            f'{{"block":{{"hash":"{name}",{header}}},"logs":[{",".join(logs[begin:end])}]}}\n'.encode()
            for name, header, begin, end in zip(self.hashes, self.headers, begins, ends, strict=True)
        ]

    def _logs(self) -> list[str]:
        segment = self.segment
        topics = [*self.world.topic_texts, *(f',"{one}"' for one in hex_rows(segment.fresh_topics)), ""]
        zero, one, two, three = ([topics[place] for place in segment.topic[:, column].tolist()] for column in range(4))
        data, ends = segment.data.tobytes().hex(), (segment.data_ends * 2).tolist()
        contracts = self.world.contract_texts
        places = self._places()
        indexes = [hex(number) for number in range(int(segment.block_logs.max()))]
        return [
            f'{contracts[contract]}{a}{b}{c}{d}],"data":"0x{data[begin:end]}{places[transaction]}{indexes[index]}","removed":false}}'
            for contract, a, b, c, d, begin, end, transaction, index in zip(
                segment.contract.tolist(),
                zero,
                one,
                two,
                three,
                [0, *ends[:-1]],
                ends,
                segment.log_transaction.tolist(),
                segment.log_index.tolist(),
                strict=True,
            )
        ]

    def _places(self) -> list[str]:
        """Where a log is, by transaction: the part of its JSON that all logs of a transaction have in common."""
        segment = self.segment
        found = []
        names = iter(hex_rows(segment.transactions))
        for block, (count, hashed) in enumerate(zip(segment.block_transactions.tolist(), self.hashes, strict=True)):
            number, time = hex(segment.first_block + block), hex(timestamp(segment.first_block + block))
            for index in range(count):
                found.append(
                    f'","blockNumber":"{number}","transactionHash":"{next(names)}","transactionIndex":"{hex(index)}",'
                    f'"blockHash":"{hashed}","blockTimestamp":"{time}","logIndex":"'
                )
        return found


def linked(scale: Scale) -> Iterator[Linked]:
    """The chain, segment after segment."""
    chain, parent = Chain(scale), ZERO_HASH
    for segment in chain.segments():
        headers, hashes = [], []
        for fields in _header_fields(segment, chain.world):
            headers.append(f'"parentHash":"{parent}",{fields}')
            parent = to_hex(keccak(headers[-1].encode()))
            hashes.append(parent)
        yield Linked(segment, chain.world, headers, hashes)


def timestamp(number: int) -> int:
    """When a block was made, in seconds."""
    return GENESIS_TIME + number * BLOCK_SECONDS


def blooms(segment: Segment, world: World) -> Bytes:
    """The logsBloom of each block. A value of the world is hashed once for the whole chain."""
    bits = np.zeros((len(segment.block_logs), 2048), dtype=bool)
    bits[segment.log_block[:, None], world.contract_bits[segment.contract]] = True
    positions = np.concatenate([world.topic_bits, bloom_positions(segment.fresh_topics)])
    for place in range(4):
        held = np.flatnonzero(segment.topic[:, place] != ABSENT)
        bits[segment.log_block[held, None], positions[segment.topic[held, place]]] = True
    return np.packbits(bits, axis=1)


def _header_fields(segment: Segment, world: World) -> Iterator[str]:
    """What follows the parent's hash in each header."""
    draw, count = Draws(segment.scale.seed, segment.first_block), len(segment.block_logs)
    roots = iter(hex_rows(draw("roots").bytes(count * 3, 32)))
    fees, miners = draw("fees").integers(count), draw("miners").integers(count)
    transactions, begins = hex_rows(segment.transactions), starts(segment.block_transactions).tolist()
    bits = hex_rows(blooms(segment, world)) if segment.scale.blooms else []
    for block in range(count):
        number, listed = segment.first_block + block, int(segment.block_transactions[block])
        names = ",".join(f'"{name}"' for name in transactions[begins[block] : begins[block] + listed])
        bloom = f'"logsBloom":"{bits[block]}",' if bits else ""
        yield (
            f'"number":"{hex(number)}","timestamp":"{hex(timestamp(number))}",{bloom}'
            f'"transactionsRoot":"{next(roots)}","receiptsRoot":"{next(roots)}","stateRoot":"{next(roots)}",'
            f'"miner":"0x{int(miners[block]) % 20:040x}","gasLimit":"{hex(GAS_LIMIT)}",'
            f'"gasUsed":"{hex(21_000 * listed + 30_000 * int(segment.block_logs[block]))}",'
            f'"baseFeePerGas":"{hex(5 * 10**9 + int(fees[block]) % 75 * 10**9)}","extraData":"0x",'
            f'"transactions":[{names}]'
        )
