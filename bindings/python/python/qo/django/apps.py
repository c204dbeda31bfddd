"""What `"qo.django"` in INSTALLED_APPS does: it makes the project's app and imports the modules with tasks."""

from django.apps import AppConfig  # type: ignore[import-not-found, import-untyped, unused-ignore]

from . import app, autodiscover


class QoConfig(AppConfig):  # type: ignore[misc, unused-ignore]
    """qo, as an installed app of Django."""

    name = "qo.django"
    label = "qo"
    verbose_name = "qo"

    def ready(self) -> None:
        """Make the app, so that every process of the project has its tasks."""
        app()
        autodiscover()
