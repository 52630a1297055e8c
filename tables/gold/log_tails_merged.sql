-- Entries of the index that are not (or need not be) in a sealed chunk: one row per stream and shard of a segment. Merged from many small segments, which it replaces for readers.
-- kind: index
-- key: chain, stream, shard
-- stages: gold.log_merges
-- retention: 30 days
CREATE TABLE gold.log_tails_merged (
  stream BIGINT NOT NULL COMMENT 'kind << 60 | low 60 bits of xxhash64(value); kinds: 1 address, 2 to 5 topic0 to topic3 (entries are log ids), 6 topic0 by block, 7 block hash (entries are block numbers)',
  shard BIGINT NOT NULL COMMENT 'Upper bits of the entries: id >> 24',
  min_local INT NOT NULL COMMENT 'Smallest entry, its lower 24 bits',
  max_local INT NOT NULL COMMENT 'Largest entry, its lower 24 bits',
  count INT NOT NULL COMMENT 'Number of entries',
  locals ARRAY<INT> NOT NULL COMMENT 'The entries, lower 24 bits, ascending'
);
