"""One room per `model_type`. A file here is a family: nothing else names it. `read` reads a config.

Each room holds a `Config`: the fields it reads, the transformer they describe, and the table from our paths to
those of the transformers class. (Annotations are not postponed in these rooms: pydantic would compile each one by
itself, and those of class variables again for every class that inherits them.)
"""

from tfacct.families.family_config import FamilyConfig
from tfacct.families.reader import ParsedConfig, read
from tfacct.families.registry import OWN, class_names, config_class, names
from tfacct.families.unsupported import NotIncluded

__all__ = ["OWN", "FamilyConfig", "NotIncluded", "ParsedConfig", "class_names", "config_class", "names", "read"]
