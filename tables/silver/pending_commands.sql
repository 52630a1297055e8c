-- Entries that a shard has received and not carried out, because Meta is behind what they need, or what stands before them needs.
-- kind: state
-- key: chain, group_name, log_index
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.pending_commands (
  group_name STRING NOT NULL COMMENT 'Shard',
  log_index BIGINT NOT NULL COMMENT 'Position in its log',
  log_term BIGINT NOT NULL COMMENT 'Term of the leader that appended it',
  required_meta_index BIGINT NOT NULL COMMENT 'Meta index that the command itself needs',
  effective_meta_index BIGINT NOT NULL COMMENT 'Meta index that it waits for: the highest that it or an earlier entry of the shard needs',
  received_height BIGINT NOT NULL COMMENT 'Delivery that brought it',
  type STRING NOT NULL COMMENT 'Kind of command',
  table_id STRING COMMENT 'Table',
  user_id STRING COMMENT 'User',
  command STRING COMMENT 'The whole command as canonical JSON; NULL once it is carried out'
)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index,effective_meta_index');
