-- Rows of the tables of a replica, by shard, table, user and primary key.
-- kind: state
-- key: chain, group_name, table_id, row_key
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.data_rows (
  group_name STRING NOT NULL COMMENT 'Shard that holds the row',
  table_id STRING NOT NULL COMMENT 'Table, namespace.table',
  row_key STRING NOT NULL COMMENT 'User and primary key as a JSON array; user is null for shared rows',
  user_id STRING COMMENT 'User that the row belongs to; NULL for shared rows',
  primary_key STRING COMMENT 'Value of the primary key: texts as they are, other values as JSON',
  row STRING COMMENT 'The row as canonical JSON; NULL once it is gone',
  log_index BIGINT COMMENT 'Entry of the shard that wrote or deleted it; NULL if a DropTable did'
)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,table_id');
