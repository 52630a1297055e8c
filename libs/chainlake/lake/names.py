"""Where tables are: one mapping from the names that people use (`silver.streams`) to schemas and physical tables."""

from dataclasses import dataclass

from chainlake.errors import BadInput

LAYERS = ("raw", "bronze", "silver", "gold")
SCHEMAS = ("control", "store", *LAYERS)


@dataclass(frozen=True)
class Namespace:
    """Schemas of one lake. `catalog` is used on Databricks, `prefix` lets several lakes share a catalog."""

    catalog: str = ""
    prefix: str = ""

    def schema(self, layer: str) -> str:
        name = f"{self.prefix}{layer}"
        return f"`{self.catalog}`.`{name}`" if self.catalog else f"`{name}`"

    def control(self, name: str) -> str:
        return f"{self.schema('control')}.`{name}`"

    def store(self, table: str) -> str:
        """Physical table of `layer.name`."""
        return f"{self.schema('store')}.`{physical(table)}`"

    def base(self, table: str) -> str:
        """Physical table that holds the compacted state of `layer.name`."""
        return f"{self.schema('store')}.`{physical(table)}_base`"

    def view(self, table: str) -> str:
        layer, name = split(table)
        return f"{self.schema(layer)}.`{name}`"


def split(table: str) -> tuple[str, str]:
    """`layer.name` in two, checked."""
    layer, dot, name = table.partition(".")
    if not dot or not name or layer not in (*LAYERS, "control"):
        raise BadInput(f"{table!r} is not a table name: use layer.name with a layer of {', '.join(LAYERS)}")
    return layer, name


def physical(table: str) -> str:
    """Name of the physical table in schema `store`; also the key used in the ledger's maps."""
    layer, name = split(table)
    return f"{layer}_{name}"
