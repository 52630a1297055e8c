"""The finalized EVM log index: from blocks to chunks of log ids, and from filters of `eth_getLogs` to logs."""
