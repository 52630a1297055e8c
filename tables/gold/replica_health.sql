-- Health of each log of a replica: whether all that was received is carried out, and if not, what it waits for.
-- kind: state
-- key: chain, group_name
-- stages: gold.replica
-- retention: 30 days
-- while_degraded: status = 'degraded', fresh = false, eligible_leader = false
CREATE TABLE gold.replica_health (
  group_name STRING NOT NULL COMMENT 'Log',
  status STRING NOT NULL COMMENT 'caught_up, catching_up while entries are pending, or degraded while a stage of the replica is: control.health says why',
  pending BIGINT NOT NULL COMMENT 'Entries received and not carried out',
  waits_for BIGINT COMMENT 'Meta index that the first of them waits for',
  waiting_since BIGINT COMMENT 'Delivery that brought it',
  applied_index BIGINT NOT NULL COMMENT 'Last entry received',
  executed_index BIGINT NOT NULL COMMENT 'Last entry carried out',
  fresh BOOLEAN NOT NULL COMMENT 'Whether reads that must be up to date are answered',
  eligible_leader BOOLEAN NOT NULL COMMENT 'Whether the replica may lead this group: not while entries are pending or the replica is degraded',
  changed_height BIGINT NOT NULL COMMENT 'Delivery that made this row'
);
