"""ERNIE 1 to 3: BERT with a task embedding."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Segments
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.families.bert import Bert
from tfacct.families.fields import PositiveInt, StrictBool


@record(kw_only=True)
class TaskEmbedding(Segments):
    """Task embedding, added to the token embeddings (transformers' ErnieEmbeddings)."""

    name: ClassVar[str] = "task_embed"
    listed_after: ClassVar[tuple[str, int]] = (Segments.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"rows": "Vk", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"Vk": "task IDs", "D": Segments.legend["D"]}
    counted: ClassVar[str] = "Vk"


class Ernie(Bert):
    """ERNIE 1 to 3, encoders: BERT with a task embedding."""

    task_type_vocab_size: PositiveInt = 3
    use_task_id: StrictBool = False
    base_model_prefix = "ernie"
    module_names = {"task_embed": ".embeddings.task_type_embeddings"}

    def architecture(self) -> Transformer:
        model = super().architecture()
        if not self.use_task_id:
            return model
        tasks = TaskEmbedding(rows=self.task_type_vocab_size, hidden=self.hidden_size)
        return replace(model, extra_embeddings=(tasks,))
