"""Model families: a class per `model_type`, a module per lineage, one registry. `read` reads a config.

Annotations are not postponed in this package: pydantic would compile each one by itself.
"""

from tfacct.families.family_config import FamilyConfig
from tfacct.families.reader import ParsedConfig, read
from tfacct.families.registry import CUSTOM, class_names, config_class, names
from tfacct.families.unsupported import NotIncluded

__all__ = ["CUSTOM", "FamilyConfig", "NotIncluded", "ParsedConfig", "class_names", "config_class", "names", "read"]
