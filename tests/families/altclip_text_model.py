"""AltCLIP's encoder of texts: RoBERTa's body, and a product of every position."""

from tests.families import roberta
from tests.families._drawing import WIDTH, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**roberta.TINY, "model_type": "altclip_text_model", "project_dim": 29, "projection_dim": 31}
VARIANTS = {"projected": {**TINY, "architectures": ["AltCLIPTextModelWithProjection"]}}
CONTEXT, REQUIRED = 512, {"num_hidden_layers": 2}


def drawn(draw: Draw) -> Fields:
    return some(draw, roberta.drawn(draw), project_dim=WIDTH)


def sized(of: Distinct) -> Sized:
    config, sizes = roberta.sized(of)
    wide, then = of.more[2] + 300, of.more[3] + 400
    projected = {"architectures": ["AltCLIPTextModelWithProjection"], "project_dim": wide, "projection_dim": then}
    return {**config, **projected}, {**sizes, "Dv": wide, "Dvf": then}
