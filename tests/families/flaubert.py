"""FlauBERT: XLM's encoder, with norms in front or behind."""

from tests.families import xlm
from tests.families._drawing import without

TINY = {**xlm.TINY, "model_type": "flaubert"}
PLAIN = {**without(TINY, "n_langs"), "pad_token_id": 2}
VARIANTS = {"of one language": PLAIN, "norms in front": {**TINY, "pre_norm": True}}
LOGITS = {"": PLAIN}
REQUIRED, drawn, sized = xlm.REQUIRED, xlm.drawn, xlm.sized
SILENT = {**xlm.SILENT, "layerdrop": 0.3}
