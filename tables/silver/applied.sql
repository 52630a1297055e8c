-- How far each log of a replica was received and carried out.
-- kind: state
-- key: chain, group_name
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.applied (
  group_name STRING NOT NULL COMMENT 'Log',
  applied_index BIGINT NOT NULL COMMENT 'Last entry received: applied in the words of Raft, carried out or pending',
  applied_term BIGINT NOT NULL COMMENT 'Its term',
  executed_index BIGINT NOT NULL COMMENT 'Last entry carried out; those from here to applied_index are pending',
  watermark BIGINT NOT NULL COMMENT 'Highest Meta index that an entry of the log needs',
  waits_for BIGINT COMMENT 'Meta index that the first pending entry waits for; NULL if none is pending',
  waiting_since BIGINT COMMENT 'Delivery that brought the first pending entry; NULL if none is pending'
);
