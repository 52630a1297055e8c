"""Values of all kinds as JSON has them."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from numbers import Integral
from typing import Any

from chainlake.encoding import to_hex


def to_plain(value: Any) -> Any:
    """A value as JSON has it: binary as 0x hex, times as ISO text, intervals in seconds, what is no number as null, and
    what JSON has nothing for as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if isinstance(value, (bytes, bytearray)):
        return to_hex(bytes(value))
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        if not value.is_finite():
            return None
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(to_plain(key)): to_plain(one) for key, one in value.items()}
    if hasattr(value, "asDict"):
        return to_plain(value.asDict())
    if isinstance(value, (list, tuple)):
        return [to_plain(one) for one in value]
    return str(value)
