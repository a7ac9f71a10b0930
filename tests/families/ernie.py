"""ERNIE's encoders: BERT with a table of tasks."""

from tests.families import bert
from tests.families._drawing import ON, SMALL, Draw, Fields, some
from tests.families._sizes import Distinct, Sized

TINY = {**bert.TINY, "model_type": "ernie", "vocab_size": 523, "use_task_id": True, "task_type_vocab_size": 5}
REQUIRED = {"num_hidden_layers": 2}  # every size has a default


def drawn(draw: Draw) -> Fields:
    return some(draw, bert.drawn(draw), use_task_id=ON, task_type_vocab_size=SMALL)


def sized(of: Distinct) -> Sized:
    config, sizes = bert.sized(of)
    return {**config, "use_task_id": True, "task_type_vocab_size": of.Le}, {**sizes, "Vk": of.Le}
