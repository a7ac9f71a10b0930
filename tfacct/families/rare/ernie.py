"""ERNIE 1 to 3: BERT with embeddings of tasks."""

from dataclasses import replace

from tfacct.architecture.parts import Tasks
from tfacct.architecture.transformer import Transformer
from tfacct.families.bert import PRETRAINING, Bert
from tfacct.families.fields import PositiveInt, StrictBool


class Ernie(Bert):
    """ERNIE 1 to 3, encoders: BERT, with an embedding of the task that a text is read for."""

    task_type_vocab_size: PositiveInt = 3
    use_task_id: StrictBool = False
    task_heads = PRETRAINING
    base_model_prefix = "ernie"
    module_names = {"task_embed": ".embeddings.task_type_embeddings"}

    def architecture(self) -> Transformer:
        model = super().architecture()
        if not self.use_task_id:
            return model
        return replace(model, extra_embeddings=(Tasks(rows=self.task_type_vocab_size, hidden=self.hidden_size),))
