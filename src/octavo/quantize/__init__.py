"""Models with fewer bits a weight: rounding to nearest, AWQ and GPTQ, on the grid of any format.

`recipe.py` says which tensor gets which format, `forward.py` runs the model over a calibration
text and `inputs.py` says what is learned from it, `scaling.py` is AWQ, `gptq.py` GPTQ, `mixing.py`
chooses formats within a budget by errors that `effects.py` weighs; `sink.py` is the file that is
written and survives a kill, `report.py` runs the model before and after.
"""

from octavo.quantize.recipe import RECIPES
from octavo.quantize.run import METHODS, Options, Progress, Written, quantize

__all__ = ["METHODS", "RECIPES", "Options", "Progress", "Written", "quantize"]
