-- Entries of the logs of a replica, as typed commands, in the order in which they were delivered; entries that came again included.
-- kind: event
-- key: chain, height, tx_index
-- stages: bronze.replica
-- retention: 30 days
CREATE TABLE bronze.commands (
  tx_index INT NOT NULL COMMENT 'Position in the delivery, from 0',
  group_name STRING NOT NULL COMMENT 'Log that the entry stands in: meta, data:user:00 to data:user:31, data:shared:00; before the Meta logs were united meta:system, meta:users, meta:jobs',
  log_index BIGINT NOT NULL COMMENT 'Position in that log, from 1',
  log_term BIGINT NOT NULL COMMENT 'Term of the leader that appended it',
  type STRING NOT NULL COMMENT 'Kind of command',
  required_meta_index BIGINT NOT NULL COMMENT 'Meta index that the command needs, its watermark; 0 for none',
  table_id STRING COMMENT 'Table that the command is about, namespace.table',
  user_id STRING COMMENT 'User that the command is about',
  command STRING NOT NULL COMMENT 'The whole command as canonical JSON',
  CONSTRAINT logs_count_from_1 CHECK (log_index > 0)
)
CLUSTER BY (_chain, _height)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index');
