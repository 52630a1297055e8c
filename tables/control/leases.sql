-- Who may write. The row with the highest epoch (and, within it, the latest time) holds the lane of a stage.
-- kind: control
-- key: stage, lane, epoch
-- retention: 30 days
CREATE TABLE control.leases (
  stage STRING NOT NULL COMMENT 'Stage',
  lane STRING NOT NULL COMMENT 'Lane of the stage',
  epoch BIGINT NOT NULL COMMENT 'Fencing number, grows with each acquisition',
  owner STRING NOT NULL COMMENT 'host:pid:process start:random',
  state STRING NOT NULL COMMENT 'held or released',
  expires_at TIMESTAMP NOT NULL COMMENT 'After this, another writer may take over',
  at TIMESTAMP NOT NULL COMMENT 'When this row was written'
);
