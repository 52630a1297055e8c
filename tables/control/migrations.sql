-- Schema changes that this lake has had, by number.
-- kind: control
-- key: number
-- retention: 30 days
CREATE TABLE control.migrations (
  number INT NOT NULL COMMENT 'Number of the file in tables/migrations',
  name STRING NOT NULL COMMENT 'File name',
  digest STRING NOT NULL COMMENT 'SHA-256 of the file',
  at TIMESTAMP NOT NULL COMMENT 'When it was applied'
);
