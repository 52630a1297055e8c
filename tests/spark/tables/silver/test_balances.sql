-- Balances of the test chain. Some payments close the account.
-- kind: state
-- key: chain, account
-- stages: silver.test
-- retention: 30 days
CREATE TABLE silver.test_balances (
  account STRING NOT NULL COMMENT 'Who',
  balance BIGINT NOT NULL COMMENT 'How much'
);
