"""What a model will need and how fast it will be here, before its weights are loaded."""

from octavo.forecast.forecast import Forecast, forecast
from octavo.forecast.load import Load
from octavo.forecast.memory import MemoryNeed
from octavo.forecast.speed import Speed

__all__ = ["Forecast", "Load", "MemoryNeed", "Speed", "forecast"]
