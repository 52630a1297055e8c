-- How far raw holds each stream: the next pass over nodes is planned from it. Written in one commit with the pass.
-- kind: state
-- key: chain, stream_id
-- stages: raw.sync
-- retention: 30 days
CREATE TABLE raw.stream_heads (
  stream_id BINARY NOT NULL COMMENT 'Stream',
  minipool_gen BIGINT NOT NULL COMMENT 'Number of the next miniblock to fetch',
  prev_miniblock_hash BINARY NOT NULL COMMENT 'Hash of the last sound miniblock; empty if there is none',
  genesis_hash BINARY COMMENT 'Hash of miniblock 0, where the server still had it',
  seen_gen BIGINT NOT NULL COMMENT 'minipool_gen that the server stated last; -1 if it is to be asked again in any case',
  seen_hash BINARY NOT NULL COMMENT 'Hash of its last miniblock then',
  minipool ARRAY<BINARY> NOT NULL COMMENT 'Hashes of the events in its minipool then',
  refused BINARY COMMENT 'SHA-256 of an unsound miniblock that was taken as evidence; the stream waits for a sound one',
  whole BOOLEAN NOT NULL COMMENT 'False: there was more to fetch'
);
