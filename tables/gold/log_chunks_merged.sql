-- Sealed chunks of the index: sets of log ids (or block numbers) in which an address or topic occurs. Merged from many small segments, which it replaces for readers.
-- kind: index
-- key: chain, stream, chunk_seq
-- stages: gold.log_merges
-- retention: 30 days
CREATE TABLE gold.log_chunks_merged (
  stream BIGINT NOT NULL COMMENT 'kind << 60 | low 60 bits of xxhash64(value); kinds: 1 address, 2 to 5 topic0 to topic3 (entries are log ids), 6 topic0 by block, 7 block hash (entries are block numbers)',
  shard BIGINT NOT NULL COMMENT 'Upper bits of the entries: id >> 24',
  chunk_seq BIGINT NOT NULL COMMENT 'Id of the first entry: grows within a stream',
  min_local INT NOT NULL COMMENT 'Smallest entry, its lower 24 bits',
  max_local INT NOT NULL COMMENT 'Largest entry, its lower 24 bits',
  count INT NOT NULL COMMENT 'Number of entries',
  chunk BINARY NOT NULL COMMENT 'Version, min, max, count, CRC-32 (big-endian), then a roaring bitmap of the lower 24 bits (portable format)'
);
