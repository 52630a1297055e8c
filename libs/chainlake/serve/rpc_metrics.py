"""What is counted of calls: how many and with what outcome, how long they took, how many candidates each clause brought."""

from chainlake.logs.rpc_values import RpcError
from chainlake.serve.methods import Note
from chainlake.serve.metrics import Family, Histogram, Quantiles, Values

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CANDIDATES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)


class RpcMetrics:
    """Metrics of the JSON-RPC side, and the faults that make the gateway degraded."""

    def __init__(self) -> None:
        self._calls = Values("lake_rpc_requests_total", "counter", "Calls by method and outcome (ok or an error code).")
        self._invalid = Values("lake_rpc_invalid_requests_total", "counter", "Messages, bodies and batches that were no call.")
        self._seconds = Histogram("lake_rpc_seconds", "Time to answer a call.", SECONDS)
        self._quantiles = Quantiles("lake_query_latency_seconds", "Time to answer a call, of the last 4,096 of each method.")
        self._candidates = Histogram("lake_query_candidates", "Index entries per clause of a log filter.", CANDIDATES)
        self._results = Values("lake_query_logs_total", "counter", "Logs answered.")
        self.faults: list[str] = []

    def called(self, method: str, error: RpcError | None, seconds: float, note: Note) -> None:
        """A call was answered."""
        self._calls.add(method=method, outcome=str(error.code) if error else "ok")
        self._seconds.observe(seconds, method=method)
        self._quantiles.observe(seconds, method=method)
        for clause, count in note.candidates:
            self._candidates.observe(count, clause=clause)
        self._results.add(note.details.get("logs", 0))

    def refused(self) -> None:
        """A message was no valid call, or a body no message or batch that is taken."""
        self._invalid.add()

    def damaged(self, reason: str) -> None:
        """Stored data was found to be damaged: the gateway is degraded from now on."""
        if reason not in self.faults and len(self.faults) < 10:
            self.faults.append(reason)

    def families(self) -> list[Family]:
        return [self._calls, self._invalid, self._seconds, self._quantiles, self._candidates, self._results]
