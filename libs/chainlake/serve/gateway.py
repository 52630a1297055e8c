"""The gateway put together: methods over one index, routes over the methods."""

from chainlake import __version__
from chainlake.serve.access_log import AccessLog
from chainlake.serve.budget import Budget
from chainlake.serve.engine import ControlTables, LogEngine
from chainlake.serve.eth import EthMethods
from chainlake.serve.filters import FilterMethods, FilterTable
from chainlake.serve.health import Monitor
from chainlake.serve.metrics import Family, Values
from chainlake.serve.no_logs import NoLogs
from chainlake.serve.pages import PageMethods
from chainlake.serve.pool import WorkPool
from chainlake.serve.queries import Queries
from chainlake.serve.router import JSON, Request, Response, Router, text_response
from chainlake.serve.rpc import Dispatcher
from chainlake.serve.rpc_metrics import RpcMetrics
from chainlake.serve.settings import Settings
from chainlake.serve.web import WebPage, wants_html

PAGE = """Chainlake {version}: {what}.

POST /         JSON-RPC 2.0: {methods}
GET  /streams  streams of metadata shards, and /stream/<hex>[/proof], /streams/node/<0xaddr>, /streams/count[/<0xaddr>]
GET  /cage     Cardano: /cage/tokens, /cage/requests, /cage/token/<hex>[/facts, /proof/<key>]
GET  /utxo     /utxo/<txid%23index>[/proof], /utxos/address/<hex>, /utxos/asset/<policy>[/<name>]
GET  /health   whether answers can be trusted and how fresh they are (503 if not)
GET  /metrics  Prometheus
GET  /notifications?after=N  events of streams after an offset; waits for them up to ?wait=SECONDS
GET  /         in a browser: stages, ledger, queries and proofs; behind it /lake/status.json and /lake/ledger.json

curl -H 'Content-Type: application/json' --data '{{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}}' http://HOST:PORT
"""


class Gateway:
    """All that a server needs: a router, and what to close at the end."""

    def __init__(
        self,
        chain: str,
        engine: LogEngine,
        control: ControlTables,
        settings: Settings,
        access_log: AccessLog | None = None,
    ) -> None:
        self.settings = settings
        self.access_log = access_log or AccessLog(settings.access_log)
        self.pool = WorkPool(settings.threads, settings.queue)
        self.budget = Budget(settings.max_outgoing)
        self.router = Router()
        self.chain = chain
        self.engine = engine
        self.has_logs = not isinstance(engine, NoLogs)
        self._table = FilterTable(settings.max_filters, settings.filter_seconds)
        queries = Queries(engine, settings)
        groups = (EthMethods(queries), PageMethods(queries), FilterMethods(queries, self._table))
        methods = [method for group in groups for method in group.methods()]
        metrics = RpcMetrics()
        self.dispatcher = Dispatcher(methods, self.pool, settings, metrics, self.access_log, self.budget)
        self._names = [method.name for method in methods]
        self._monitor = Monitor(chain, engine, control, metrics, self._own_metrics)
        self._web = WebPage(chain if self.has_logs else None, control)
        self._connections = Values("lake_http_connections", "gauge", "Open connections.")
        self._http = Values("lake_http_responses_total", "counter", "HTTP responses by status.")
        self._dropped = Values("lake_http_dropped_total", "counter", "Connections closed by the server, by reason.")
        self._add_routes()

    def connections(self, count: int) -> None:
        """So many connections are open."""
        self._connections.set(count)

    def responded(self, status: int) -> None:
        """An HTTP response was sent."""
        self._http.add(status=str(status))

    def dropped(self, reason: str) -> None:
        """A connection was closed because its client did not keep to the limits."""
        self._dropped.add(reason=reason)

    def close(self) -> None:
        """Stop the threads."""
        self.pool.close()
        self._monitor.close()
        self._web.close()
        self.access_log.close()

    def _add_routes(self) -> None:
        self.router.add("POST", "/", self._rpc)
        self.router.add("GET", "/", self._home)
        self.router.add("GET", "/health", self._monitor.health)
        self.router.add("GET", "/metrics", self._monitor.page)
        self._web.add_routes(self.router)

    async def _rpc(self, request: Request) -> Response:
        return Response(200, await self.dispatcher.answer(request.body, request.remote), JSON)

    async def _home(self, request: Request) -> Response:
        if wants_html(request.headers.get("Accept", "")):
            return self._web.home()
        names = ", ".join(sorted(self._names))
        logs = f"the finalized logs of {self.chain} (chain id {self.settings.chain_id})"
        what = logs if self.has_logs else "no logs, since the lake has no evm chain; other routes are below"
        return text_response(PAGE.format(version=__version__, what=what, methods=names))

    def _own_metrics(self) -> list[Family]:
        pending = Values("lake_queue_pending", "gauge", "Calls that run or wait for a thread.")
        pending.set(self.pool.pending)
        refused = Values("lake_queue_refused_total", "counter", "Calls that were told that the server is busy.")
        refused.set(self.pool.refused)
        late = Values("lake_queue_timed_out_total", "counter", "Calls that took too long.")
        late.set(self.pool.timed_out)
        filters = Values("lake_filters_installed", "gauge", "Installed filters.")
        filters.set(len(self._table))
        waiting = Values("lake_answers_waiting_bytes", "gauge", "Bytes of answers that are collected or wait for slow readers.")
        waiting.set(self.budget.used)
        lost = Values("lake_log_lines_lost_total", "counter", "Lines of the access log that could not be written in time.")
        lost.set(self.access_log.lost)
        return [self._connections, self._http, self._dropped, pending, refused, late, filters, waiting, lost]
