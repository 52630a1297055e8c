-- What came of each command, in the delivery in which it was carried out. Blank and Membership entries have no result.
-- kind: event
-- key: chain, group_name, log_index
-- stages: silver.replica
-- retention: 30 days
CREATE TABLE silver.command_results (
  group_name STRING NOT NULL COMMENT 'Log that the command stands in',
  log_index BIGINT NOT NULL COMMENT 'Position in that log',
  type STRING NOT NULL COMMENT 'Kind of command',
  ok BOOLEAN NOT NULL COMMENT 'Whether it succeeded; a command that fails changes nothing',
  rows_changed BIGINT NOT NULL COMMENT 'Rows that it wrote or deleted; 0 for Meta commands',
  error STRING COMMENT 'Why it failed; NULL if it did not',
  received_height BIGINT NOT NULL COMMENT 'Delivery that brought it: below height if it had to wait',
  required_meta_index BIGINT NOT NULL COMMENT 'Meta index that it needed; 0 for Meta commands and for none',
  meta_index BIGINT NOT NULL COMMENT 'Meta index that it was carried out against; of Meta commands their own'
)
CLUSTER BY (_chain, _height)
TBLPROPERTIES ('delta.dataSkippingStatsColumns' = '_chain,_height,_commit,group_name,log_index');
