"""Where tasks and data come from. Formats with a dependency of their own import it only when used."""

from policytest.sources.files import Model, load_model, save_model

__all__ = ["Model", "load_model", "save_model"]
