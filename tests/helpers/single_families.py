"""Configs of single families that both the torch-free tests and the oracle use."""

from tests.helpers.models import tiny

BODY = 'architectures=["{}"]'
T5 = "t5-base"
FORMS = ("expanded", "absorbed")


def by_name(**fields):
    """The small model in each form, by name, and left open."""
    return {form: tiny("deepseek_v3", latent_attention=form, **fields) for form in (*FORMS, "auto")}
