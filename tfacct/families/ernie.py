"""ERNIE 1 to 3, encoders: BERT, with a table of the tasks that a text is read for."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Tasks
from tfacct.architecture.transformer import Transformer
from tfacct.families import bert
from tfacct.families._base import Count, Switch

RELEASED = "2019-04"


class Config(bert.Config):
    """`ErnieConfig`, with its class's defaults: `ErnieForMaskedLM`, or the class that `architectures` names."""

    task_type_vocab_size: Count = 3
    use_task_id: Switch = False

    stems: ClassVar = ("Ernie",)
    heads: ClassVar = bert.with_pairs("ernie.")
    body: ClassVar = "ernie."
    hf_paths: ClassVar = {
        **{ours: theirs.replace("bert.", "ernie.") for ours, theirs in bert.Config.hf_paths.items()},
        "task_embed": "ernie.embeddings.task_type_embeddings",
    }

    def architecture(self) -> Transformer:
        """BERT's, with the table of tasks where it is used."""
        shape = super().architecture()
        if not self.use_task_id:
            return shape
        return replace(shape, tasks=Tasks(rows=self.task_type_vocab_size, hidden=self.hidden_size))
